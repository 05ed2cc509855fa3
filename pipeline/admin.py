"""Query a broker's topics, and create topics, with the Kafka client that Spark itself uses.

The client is the connector's, in Spark's Java process: settings that give Spark access, such as
``kafka.security.protocol``, give this module access too, and nothing more is installed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.source import TopicSource, client_options

_PREFIX = "kafka."


@dataclass(frozen=True, slots=True)
class TopicAdmin:
    """An open client of Kafka's Admin interface."""

    jvm: JVMView
    client: JavaObject

    def topics(self, source: TopicSource) -> list[str]:
        """Return the names of a source's topics."""
        if source.topic is not None:
            return [name.strip() for name in source.topic.split(",")]
        pattern = self.jvm.java.util.regex.Pattern
        names = sorted(str(name) for name in self.client.listTopics().names().get())
        return [name for name in names if pattern.matches(source.subscribe_pattern, name)]

    def partition_count(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, None if the topic does not exist."""
        try:
            described = self.client.describeTopics([topic]).allTopicNames().get()
        except Py4JJavaError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                return None
            raise
        return int(described[topic].partitions().size())

    def create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic, with the broker's replication factor."""
        java = self.jvm.java.util.Optional
        new = self.jvm.org.apache.kafka.clients.admin.NewTopic(
            topic, java.of(partitions), java.empty()
        )
        self.client.createTopics([new.configs(dict(configs))]).all().get()

    def config(self, topic: str, name: str) -> str:
        """Return a config of a topic, its default where none is set."""
        kinds = getattr(self.jvm.org.apache.kafka.common.config, "ConfigResource$Type")
        resource = self.jvm.org.apache.kafka.common.config.ConfigResource(kinds.TOPIC, topic)
        described = self.client.describeConfigs([resource]).all().get()[resource]
        return str(described.get(name).value())

    def offsets(self, topic: str, *, earliest: bool = False) -> dict[int, int]:
        """Return each partition's last stable offset, or with ``earliest`` its first offset."""
        count = self.partition_count(topic) or 0
        admin, common = self.jvm.org.apache.kafka.clients.admin, self.jvm.org.apache.kafka.common
        spec = admin.OffsetSpec.earliest() if earliest else admin.OffsetSpec.latest()
        options = admin.ListOffsetsOptions(common.IsolationLevel.READ_COMMITTED)
        partitions = {number: common.TopicPartition(topic, number) for number in range(count)}
        asked = dict.fromkeys(partitions.values(), spec)
        offsets = self.client.listOffsets(asked, options).all().get()
        return {number: int(offsets[one].offset()) for number, one in partitions.items()}


@contextmanager
def open_admin(spark: SparkSession, source: TopicSource) -> Iterator[TopicAdmin]:
    """Open a client with the ``kafka.`` options of a source, and close it at the end."""
    assert spark._jvm is not None, "a session that is not running"
    properties = spark._jvm.java.util.Properties()
    for name, value in client_options(source).items():
        properties.setProperty(name.removeprefix(_PREFIX), value)
    client = spark._jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        yield TopicAdmin(spark._jvm, client)
    finally:
        client.close()


def require_compacted(admin: TopicAdmin, source: TopicSource) -> int:
    """Return the number of partitions of a topic, which must exist and be compacted.

    Raises PipelineError otherwise.
    """
    topic = str(source.topic)
    count = admin.partition_count(topic)
    if count is None:
        raise PipelineError(
            f"topic {topic} does not exist at {source.where}: create it with "
            "cleanup.policy=compact, or add --create"
        )
    require_compaction(topic, admin.config(topic, "cleanup.policy").split(","))
    return count


def require_compaction(topic: str, policies: Sequence[str]) -> None:
    """Raise PipelineError unless one of a topic's policies is to compact it."""
    if "compact" not in policies:
        raise PipelineError(
            f"topic {topic} has cleanup.policy={','.join(policies) or '(none)'}: set "
            "cleanup.policy=compact on it, or name another --topic"
        )
