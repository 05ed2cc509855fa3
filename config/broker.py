"""The settings of a broker, and which of them may change while it runs.

The names and meanings are Kafka 4.3's. A default differs where Kafka's would be wrong for one
broker on its own machine; the text of such an option says so. The options of the cleaner and of
the coordinators are sections in modules of their own; Kafka's options that have no meaning here
are in config.inert.
"""

from __future__ import annotations

from odradek.config.cleaner import CleanerOptions
from odradek.config.coordinators import CoordinatorOptions
from odradek.config.http import TOKEN
from odradek.config.listeners import (
    Listener,
    ListenerSettings,
    advertised_listeners,
    bound_listeners,
    check_address,
    check_host_counts,
    parse_address,
    parse_host_counts,
)
from odradek.config.object_store import LOCAL, OBJECT, STORAGE, URL
from odradek.config.option import option, options
from odradek.config.values import (
    INT32_MAX,
    Validator,
    at_least,
    int32,
    int64,
    one_of,
    password,
    subset_of,
    words,
)

ROLES = ("broker", "controller")


@options
class BrokerConfig(CleanerOptions, CoordinatorOptions):
    """The effective settings of this broker."""

    # The broker's identity and addresses.

    node_id: int32 = option(
        "node.id",
        default=1,
        valid=at_least(0),
        doc="The number that identifies this broker in the cluster. Kafka requires it.",
    )
    broker_id: int32 = option(
        "broker.id",
        default=-1,
        doc="The older name of node.id; when both are set they must be equal.",
    )
    broker_rack: str | None = option(
        "broker.rack",
        default=None,
        doc="The rack that the broker stands in, which clients find in the metadata. Consumers "
        "with the same client.rack read shared topics here.",
    )
    process_roles: tuple[str, ...] = option(
        "process.roles",
        default=("broker",),
        valid=subset_of(*ROLES),
        doc="Must contain broker. The broker itself does a controller's work.",
    )
    odradek_cluster_id: str | None = option(
        "odradek.cluster.id",
        default=None,
        doc="The cluster id of a new data directory, by default a random one. The environment "
        "variable CLUSTER_ID of Kafka's images sets it.",
    )
    listeners: tuple[str, ...] = option(
        "listeners",
        default=("PLAINTEXT://127.0.0.1:9092",),
        valid=words(),
        doc="The addresses to listen at, as NAME://host:port; an empty host means every "
        "interface. The default serves only this machine, where Kafka's serves everybody.",
    )
    advertised_listeners: tuple[str, ...] | None = option(
        "advertised.listeners",
        default=None,
        valid=words(),
        doc="The addresses that clients connect to, when they differ from listeners.",
    )
    listener_security_protocol_map: str = option(
        "listener.security.protocol.map",
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    controller_listener_names: tuple[str, ...] = option(
        "controller.listener.names",
        default=(),
        valid=words(empty=True),
        doc="Listener names that belong to Kafka's controller; the broker does not open them.",
    )
    metrics_listener: str = option(
        "metrics.listener",
        default="127.0.0.1:9308",
        valid=Validator("host:port", check_address),
        doc="The address where metrics, health and the web page are served over HTTP; empty "
        "turns it off. Kafka has no such option.",
    )
    odradek_admin_token: password | None = option(
        "odradek.admin.token",
        default=None,
        valid=TOKEN,
        doc="The token that a request over HTTP must show (Authorization: Bearer …) to change "
        "anything, such as to start the cleaner or to retry a failed cleaning. By default the "
        "broker makes a random token at each start, prints it, and writes it to the file "
        "odradek-admin-token of the first log directory.",
    )
    log_dir: tuple[str, ...] = option(
        "log.dir",
        default=("./data",),
        valid=words(),
        doc="The data directory when log.dirs is not set. The default lies under the directory "
        "that the broker is started in; Kafka's is /tmp/kafka-logs.",
    )
    log_dirs: tuple[str, ...] | None = option(
        "log.dirs",
        default=None,
        valid=words(),
        doc="The data directories; a new partition goes to the one with the fewest partitions.",
    )

    # Connections and requests.

    socket_request_max_bytes: int32 = option(
        "socket.request.max.bytes",
        default=100 * 1024 * 1024,
        valid=at_least(1),
        doc="The size of the largest request; a larger one closes its connection.",
    )
    max_request_partition_size_limit: int32 = option(
        "max.request.partition.size.limit",
        default=2000,
        valid=at_least(1),
        doc="The most partitions that one DescribeTopicPartitions response may hold.",
    )
    socket_receive_buffer_bytes: int32 = option(
        "socket.receive.buffer.bytes",
        default=100 * 1024,
        doc="The size of a socket's receive buffer; -1 is the operating system's default.",
    )
    socket_send_buffer_bytes: int32 = option(
        "socket.send.buffer.bytes",
        default=100 * 1024,
        doc="The size of a socket's send buffer; -1 is the operating system's default.",
    )
    socket_listen_backlog_size: int32 = option(
        "socket.listen.backlog.size",
        default=50,
        valid=at_least(1),
        doc="How many connections may wait to be accepted.",
    )
    queued_max_requests: int32 = option(
        "queued.max.requests",
        default=500,
        valid=at_least(1),
        doc="How many requests may be in progress before the broker stops reading more.",
    )
    queued_max_request_bytes: int64 = option(
        "queued.max.request.bytes",
        default=-1,
        doc="How many bytes of requests may be arriving or waiting for the disk, over all "
        "connections, before the broker stops reading new requests; -1 means no limit.",
    )
    odradek_unsent_bytes_max: int64 = option(
        "odradek.unsent.bytes.max",
        default=256 * 1024 * 1024,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many bytes of responses may wait for clients that read slowly; above that each "
        "fetch gets only one batch.",
    )
    connections_max_idle_ms: int64 = option(
        "connections.max.idle.ms",
        default=600_000,
        doc="How long a connection may be idle before the broker closes it; a negative value "
        "means for ever.",
    )
    max_connections_per_ip: int32 = option(
        "max.connections.per.ip",
        default=INT32_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many connections one address may have; each further one is closed at once.",
    )
    max_connections_per_ip_overrides: str = option(
        "max.connections.per.ip.overrides",
        default="",
        valid=Validator("host:count,...", check_host_counts),
        dynamic="cluster-wide",
        doc="Limits for some hosts that replace max.connections.per.ip.",
    )
    max_incremental_fetch_session_cache_slots: int32 = option(
        "max.incremental.fetch.session.cache.slots",
        default=1000,
        valid=at_least(0),
        doc="How many incremental fetch sessions the broker remembers.",
    )
    odradek_fetch_session_partitions_max: int32 = option(
        "odradek.fetch.session.partitions.max",
        default=10_000,
        valid=at_least(0),
        doc="How many partitions a fetch session may have; a client that fetches more partitions "
        "names all of them in every request.",
    )
    odradek_fetch_hurry: bool = option(
        "odradek.fetch.hurry",
        default=True,
        dynamic="cluster-wide",
        doc="Whether a waiting fetch is answered with the records there are as soon as the "
        "client sends a request other than a fetch on the same connection. Without this, as in "
        "Kafka, that request waits for the fetch, and fetch.min.bytes holds for clients that "
        "send all their requests on one connection.",
    )
    fetch_max_bytes: int32 = option(
        "fetch.max.bytes",
        default=55 * 1024 * 1024,
        valid=at_least(1024),
        doc="The most bytes that one fetch returns, whatever it asks for; one batch is returned "
        "even if it is larger.",
    )
    num_io_threads: int32 = option(
        "num.io.threads",
        default=8,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="How many threads do the work that would block the event loop: cold reads and "
        "flushes.",
    )
    background_threads: int32 = option(
        "background.threads",
        default=10,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="How many threads do work that no client waits for, such as deleting files.",
    )
    odradek_create_missing_partitions: bool = option(
        "odradek.create.missing.partitions",
        default=False,
        doc="Whether a partition whose directory is missing is created again, empty, at the "
        "start. Otherwise it is offline, since a disk may only be absent for a while.",
    )
    odradek_open_files_max: int32 = option(
        "odradek.open.files.max",
        default=4096,
        valid=at_least(16),
        doc="How many files of partitions are kept open, at most half of the process's limit; "
        "files that were not used lately are closed, and opened again when needed.",
    )
    telemetry_max_bytes: int32 = option(
        "telemetry.max.bytes",
        default=1024 * 1024,
        valid=at_least(1),
        doc="The most bytes of compressed metrics that a client may push at once (KIP-714).",
    )
    odradek_telemetry_series_max: int32 = option(
        "odradek.telemetry.series.max",
        default=100_000,
        valid=at_least(0),
        doc="How many values pushed by clients are kept for /metrics, over all clients. With its "
        "name and labels a value takes at most 2 KiB on average.",
    )
    odradek_group_series_max: int32 = option(
        "odradek.group.series.max",
        default=10_000,
        valid=at_least(0),
        doc="The number of consumer groups' partitions, over all groups, for which /metrics "
        "shows offsets and lag; the same limit holds for share groups.",
    )
    num_recovery_threads_per_data_dir: int32 = option(
        "num.recovery.threads.per.data.dir",
        default=2,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="How many threads per data directory load and recover logs at the start.",
    )

    # Topics. TopicConfig declares a topic's own options, under the names of both.

    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        default=True,
        doc="Whether a client's request for a topic that does not exist creates it.",
    )
    delete_topic_enable: bool = option(
        "delete.topic.enable",
        default=True,
        doc="Whether topics may be deleted.",
    )
    num_partitions: int32 = option(
        "num.partitions",
        default=1,
        valid=at_least(1),
        doc="How many partitions a topic gets when the request to create it gives no number.",
    )
    default_replication_factor: int32 = option(
        "default.replication.factor",
        default=1,
        doc="How many replicas a partition gets when the request to create it gives no number.",
    )
    odradek_storage: str = option(
        STORAGE,
        default=LOCAL,
        valid=one_of(LOCAL, OBJECT),
        dynamic="cluster-wide",
        doc="Where the log of a new topic is that does not say so, also of an internal one. The "
        f"default is {OBJECT} on a broker with {URL}. A change leaves the topics that exist where "
        "they are.",
    )

    # Logs.

    log_retention_check_interval_ms: int64 = option(
        "log.retention.check.interval.ms",
        default=300_000,
        valid=at_least(1),
        doc="How often the broker looks for segments that are past their retention.",
    )
    log_initial_task_delay_ms: int64 = option(
        "log.initial.task.delay.ms",
        default=30_000,
        valid=at_least(0),
        internal=True,
        doc="How long after the start the first round of retention and checkpoints begins.",
    )
    log_flush_acks_all: bool = option(
        "log.flush.acks.all",
        default=True,
        doc="Whether acks=all is answered only once the records are on disk (fdatasync). "
        "Kafka has no such option: it relies on replicas instead.",
    )
    log_flush_offset_checkpoint_interval_ms: int32 = option(
        "log.flush.offset.checkpoint.interval.ms",
        default=60_000,
        valid=at_least(0),
        doc="How often recovery points are written to disk; after a crash the broker reads the "
        "log again from there.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int32 = option(
        "log.flush.start.offset.checkpoint.interval.ms",
        default=60_000,
        valid=at_least(0),
        doc="How often log start offsets are written to disk.",
    )

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories of the data: log.dirs, or else log.dir."""
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @property
    def bound_endpoints(self) -> tuple[Listener, ...]:
        """The listeners to bind. Raises ConfigError when they cannot be read or served."""
        return bound_listeners(self._listener_settings())

    @property
    def advertised_endpoints(self) -> tuple[Listener, ...]:
        """The addresses to send to clients. An empty host or port 0 is filled in once bound."""
        return advertised_listeners(self._listener_settings())

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The host and port of the HTTP listener, or None for none."""
        return parse_address("metrics.listener", self.metrics_listener)

    @property
    def connections_per_host(self) -> dict[str, int]:
        """The limits of hosts with a limit of their own, by host name or address."""
        return parse_host_counts(self.max_connections_per_ip_overrides)

    def _listener_settings(self) -> ListenerSettings:
        return ListenerSettings(
            self.listeners,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            self.controller_listener_names,
        )
