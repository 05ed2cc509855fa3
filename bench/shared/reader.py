"""A consumer that measures how long records were on their way, in its own process.

    python -m bench.shared.reader BOOTSTRAP TOPIC PARTITIONS

Each record begins with the time when it was sent, in nanoseconds of the monotonic clock, which all
processes of a machine share. Prints "ready" once it reads. A line of its standard input ends it
once there is nothing left to read; then it prints the seconds of one in ten records as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from confluent_kafka import Consumer, TopicPartition

from bench.shared.loads import STAMP_BYTES

_ONE_OF = 10


def main() -> None:
    """Consume until the end, then print the seconds that records took."""
    bootstrap, topic, partitions = sys.argv[1:]
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
        | {"auto.offset.reset": "latest", "log_level": 0, "fetch.wait.max.ms": 500}
        | {"topic.metadata.refresh.interval.ms": 500}
    )
    places = [TopicPartition(topic, one) for one in range(int(partitions))]
    for one in places:  # an offset that is known, so that no record is missed
        one.offset = consumer.get_watermark_offsets(one, timeout=60)[1]
    consumer.assign(places)
    consumer.poll(1.0)
    print("ready", flush=True)
    is_ending = threading.Event()

    def wait_for_line() -> None:
        sys.stdin.readline()
        is_ending.set()

    threading.Thread(target=wait_for_line, daemon=True).start()
    ways_s: list[float] = []
    while True:
        messages = consumer.consume(10_000, 0.005 if not is_ending.is_set() else 2.0)
        if is_ending.is_set() and not messages:
            break
        now_ns = time.monotonic_ns()
        for message in messages[::_ONE_OF]:
            value = message.value()
            assert value is not None, "every record is stamped"
            ways_s.append((now_ns - int.from_bytes(value[:STAMP_BYTES], "big")) / 1e9)
    json.dump(ways_s, sys.stdout)
    consumer.close()


if __name__ == "__main__":
    main()
