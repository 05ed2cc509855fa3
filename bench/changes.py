"""The time until a change made at one broker of a cluster is in force at another one.

    python -m bench.changes [--count 500] [--catalog postgresql://…]

Without a catalog two brokers share a file of SQLite. A setting of a topic is changed at the first
broker; the second one is asked for it without a pause from the answer on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.asking import Connection
from bench.pairs import quantile
from bench.processes import OdradekProcess
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_TOPIC, _SETTING, _OF_TOPIC = "changing", "retention.ms", 2
_FIRST_MS = 1_000_000


def change(connection: Connection, value: int) -> None:
    """Change the setting."""
    config = AlterableConfig(name=_SETTING, config_operation=0, value=str(value))
    resource = AlterConfigsResource(
        resource_type=_OF_TOPIC, resource_name=_TOPIC, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = connection.ask(request, 1, IncrementalAlterConfigsResponse)
    assert not answer.responses[0].error_code, answer


def value_at(connection: Connection) -> str | None:
    """Return the setting as a broker knows it."""
    resource = DescribeConfigsResource(
        resource_type=_OF_TOPIC, resource_name=_TOPIC, configuration_keys=[_SETTING]
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = connection.ask(request, 4, DescribeConfigsResponse)
    return answer.results[0].configs[0].value if answer.results[0].configs else None


def measure(first: OdradekProcess, second: OdradekProcess, count: int) -> list[float]:
    """Return the times in ms, sorted."""
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    admin.create_topics([NewTopic(_TOPIC, 1)])[_TOPIC].result(30)
    times = []
    with Connection(first.port) as one, Connection(second.port) as other:
        for number in range(count):
            value = _FIRST_MS + number
            change(one, value)
            changed_s = time.perf_counter()
            while value_at(other) != str(value):
                pass
            times.append((time.perf_counter() - changed_s) * 1_000)
    return sorted(times)


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--catalog", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        url = options.catalog or f"sqlite://{Path(folder) / 'catalog.db'}"
        brokers = []
        for node_id in (1, 2):
            settings = {"odradek.catalog.url": url, "node.id": str(node_id)}
            broker = OdradekProcess(Path(folder) / str(node_id), settings)
            stack.callback(broker.stop)
            broker.start()
            brokers.append(broker)
        times = measure(brokers[0], brokers[1], options.count)
    median, late = (quantile(times, share) for share in (0.5, 0.99))
    print(f"in force after {median:.0f} ms (median), {late:.0f} (p99), {times[-1]:.0f} (longest)")


if __name__ == "__main__":
    main()
