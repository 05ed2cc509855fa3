"""The course of a siege: load, troubles, peace, the last reads, the checks."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.histories.checks.checker import check
from tests.histories.checks.problem import Problem
from tests.histories.history import History
from tests.histories.recording import Recorder, read_recordings
from tests.siege.crew import Crew, Load
from tests.siege.load.client import Client
from tests.siege.load.consumers import scan
from tests.siege.nemesis import Nemesis
from tests.siege.stage import Stage

EVENTS, TABLE, COPIES = "events", "table", "copies"
_DELETE_RETENTION_S = 10.0
TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    EVENTS: (3, {}),
    TABLE: (
        2,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(int(_DELETE_RETENTION_S * 1000)),
        },
    ),
    COPIES: (3, {}),
}
PROMISES: Mapping[str, Mapping[str, object]] = {
    EVENTS: {"keeps_reads": True},
    COPIES: {"keeps_reads": True},
    TABLE: {
        "keeps_reads": True, "compacted": True, "delete_retention_s": _DELETE_RETENTION_S,
    },
}  # fmt: skip
_SMALL = {"internal.segment.bytes": "100000", "file.delete.delay.ms": "1000"}
_ALL = (EVENTS, TABLE)
LOADS = (
    Load("idempotent", "first", _ALL),
    Load("idempotent", "second", _ALL),
    Load("plain", "plain", _ALL),
    Load("transactional", "txn-1", _ALL),
    Load("transactional", "txn-2", _ALL),
    Load("reader", "reader", _ALL),
    Load("uncommitted-reader", "early", _ALL),
    Load("scanner", "scanner", (TABLE,)),
    Load("classic-member", "classic-1", (EVENTS,)),
    Load("classic-member", "classic-2", (EVENTS,)),
    Load("member", "new-1", (EVENTS,)),
    Load("member", "new-2", (EVENTS,)),
    Load("copier", "copier-1", (EVENTS,)),
    Load("copier", "copier-2", (EVENTS,)),
    Load("deleter", "deleter", (EVENTS,)),
    Load("administrator", "administrator", (EVENTS, TABLE, COPIES)),
    Load("java-idempotent", "java-1", (EVENTS,)),
    Load("java-member", "java-2", (EVENTS,)),
    Load("java-sharer", "java-3", (EVENTS,)),
    Load("java-sharer", "java-4", (EVENTS,)),
)
_END_S = 120.0
_NAME = "siege"
_TRANSACTIONAL = ("txn", "copier")


@dataclass
class Report:
    """The result of a siege."""

    history: History
    problems: list[Problem]
    hung: int  # clients that were replaced

    @property
    def troubles(self) -> Counter[str]:
        """How often there was each trouble."""
        return Counter(one.name for one in self.history.disruptions)


class Siege:
    """A cluster under load and in trouble."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._seed = stage, seed
        self._folder = stage.folder / "histories"
        self._folder.mkdir()
        self._recorder = Recorder(self._folder / "siege.jsonl")
        self._client = Client(
            _NAME, stage.bootstrap, [], self._recorder, random.Random(seed), threading.Event()
        )
        counts = {name: count for name, (count, _) in TOPICS.items()}
        self._crew = Crew(self._folder, stage.bootstrap, seed, counts, self._note)

    def run(self, seconds: float) -> Report:
        """Besiege the cluster for some seconds; return what was found."""
        self._create_topics()
        nemesis = Nemesis(self._stage, self._seed, self._recorder)
        try:
            self._crew.start(LOADS)
            nemesis.run(seconds)
            self._crew.end()
        finally:
            self._crew.kill()
        self._end_transactions()
        self._read_all()
        self._recorder.close()
        history = read_recordings(sorted(self._folder.glob("*.jsonl")))
        return Report(history, check(history), self._crew.hung)

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._stage.bootstrap})
        asked = admin.create_topics([
            NewTopic(name, count, 1, config={**_SMALL, **config})
            for name, (count, config) in TOPICS.items()
        ])  # fmt: skip
        for future in asked.values():
            future.result()
        for name, promises in PROMISES.items():
            self._client.begin("topic", topic=name, **promises)

    def _end_transactions(self) -> None:
        """End the transactions of clients that hung."""
        for name in self._crew.names:
            if name.startswith(_TRANSACTIONAL):
                settings = self._client.settings(transactional_id=name)
                Producer(settings).init_transactions(_END_S)

    def _note(self, text: str) -> None:
        self._client.begin("problem", text=text)

    def _read_all(self) -> None:
        """Read what there is in the end: all records, and the committed ones."""
        for topic, (count, _) in TOPICS.items():
            for number in range(count):
                for is_committed in (True, False):
                    # A copy whose transaction was aborted is made again, and there twice.
                    is_read = scan(
                        self._client,
                        (topic, number),
                        is_committed=is_committed,
                        is_final=True,
                        leaves_out=is_committed or topic == COPIES,
                        patience_s=_END_S,
                    )
                    if not is_read:
                        self._note(f"stuck: {topic}-{number} cannot be read to its end")
