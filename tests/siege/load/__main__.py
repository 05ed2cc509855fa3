"""A client of a siege as a process of its own; it ends after its standard input has.

    python -m tests.siege.load KIND NAME BOOTSTRAP FILE SEED TOPIC:PARTITIONS[:BROKER,...] ...

FILE gets its part of the history. A topic whose name has "table" in it is compacted, one with
"mixed" has another policy at times; with brokers, only these ever lead it.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.histories.recording import Recorder
from tests.siege.load import admins, consumers, producers
from tests.siege.load.client import Client

GROUP_OF_MEMBERS, GROUP_OF_COPIERS, COPIES = "members", "copiers", "copies"


def _compacted(client: Client) -> set[str]:
    return {topic for topic, _ in client.places if "table" in topic}


KINDS: Mapping[str, Callable[[Client], None]] = {
    "plain": lambda one: producers.produce_plainly(one, _compacted(one)),
    "idempotent": lambda one: producers.produce_in_turn(one, _compacted(one)),
    "idempotent-ahead": lambda one: producers.produce_ahead(one, _compacted(one)),
    "transactional": lambda one: producers.Transactions(one, _compacted(one)).run(),
    "reader": lambda one: consumers.read(one, is_committed=True),
    "uncommitted-reader": lambda one: consumers.read(one, is_committed=False),
    "scanner": consumers.scan_again,
    "classic-member": lambda one: consumers.run_member(one, GROUP_OF_MEMBERS, "classic"),
    "member": lambda one: consumers.run_member(one, f"new-{GROUP_OF_MEMBERS}", "consumer"),
    "copier": lambda one: consumers.Copier(one, GROUP_OF_COPIERS, COPIES).run(),
    "deleter": admins.delete_records,
    "administrator": lambda one: admins.Administrator(one).run(),
}


def main() -> None:
    """Run a client."""
    kind, name, bootstrap, file, seed, *topics = sys.argv[1:]
    places, homes = [], {}
    for one in topics:
        topic, count, *only = one.split(":")
        places += [(topic, number) for number in range(int(count))]
        if only:
            homes[topic] = [int(node_id) for node_id in only[0].split(",")]
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    recorder, source = Recorder(Path(file)), random.Random(f"{seed} {name}")
    KINDS[kind](Client(name, bootstrap, places, recorder, source, over, homes))
    recorder.close()


if __name__ == "__main__":
    main()
