"""A consumer that measures how long records were on their way, in its own process.

    python -m bench.stamped_reader BOOTSTRAP TOPIC COUNT

Each record begins with the time when it was sent, in nanoseconds of the monotonic clock, which all
processes of a machine share. Prints "ready" once it waits, and at the end the seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

STAMP_BYTES = 8


def main() -> None:
    """Consume a number of records, then print the seconds that each took."""
    bootstrap, topic, count = sys.argv[1:]
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
        | {"auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(1.0)  # connects
    print("ready", flush=True)
    ways_s: list[float] = []
    while len(ways_s) < int(count):
        message = consumer.poll(60)
        assert message is not None, f"{len(ways_s)} of {count} records came"
        value = message.value()
        assert value is not None, "every record is stamped"
        sent_ns = int.from_bytes(value[:STAMP_BYTES], "big")
        ways_s.append((time.monotonic_ns() - sent_ns) / 1e9)
    json.dump(ways_s, sys.stdout)
    consumer.close()


if __name__ == "__main__":
    main()
