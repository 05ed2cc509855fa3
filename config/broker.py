"""What a broker is told when it starts, and what of it may be changed while it runs.

The names and meanings are Kafka 4.3's. Defaults differ where Kafka's would be wrong for one
broker on its own machine; the sentence of such an option says so. Options of Kafka's that
have no meaning here are in config.inert.
"""

from __future__ import annotations

from config.http import TOKEN
from config.listeners import (
    Listener,
    ListenerSettings,
    advertised_listeners,
    bound_listeners,
    check_address,
    check_host_counts,
    parse_address,
    parse_host_counts,
)
from config.option import DAY_MS, HOUR_MS, option, options
from config.values import (
    DOUBLE_MAX,
    INT32_MAX,
    Validator,
    at_least,
    int16,
    int32,
    int64,
    password,
    subset_of,
    words,
)

ROLES = ("broker", "controller")


@options
class BrokerConfig:
    """The settings of this broker, as they are in force."""

    # Who it is and where it is reached.

    node_id: int32 = option(
        "node.id",
        default=1,
        valid=at_least(0),
        doc="The number that names this broker in the cluster. Kafka requires it.",
    )
    broker_id: int32 = option(
        "broker.id",
        default=-1,
        doc="The older name of node.id; when both are set they must be equal.",
    )
    broker_rack: str | None = option(
        "broker.rack",
        default=None,
        doc="Where the broker stands, told to clients that ask for metadata.",
    )
    process_roles: tuple[str, ...] = option(
        "process.roles",
        default=("broker",),
        valid=subset_of(*ROLES),
        doc="Must name broker. A controller's work is done by the broker itself.",
    )
    odradek_cluster_id: str | None = option(
        "odradek.cluster.id",
        default=None,
        doc="The cluster id to give a new data directory, by default a random one. The variable "
        "CLUSTER_ID of Kafka's images sets it.",
    )
    listeners: tuple[str, ...] = option(
        "listeners",
        default=("PLAINTEXT://127.0.0.1:9092",),
        valid=words(),
        doc="Where to listen, as NAME://host:port; an empty host is every interface. The "
        "default answers this machine only, where Kafka's answers everybody.",
    )
    advertised_listeners: tuple[str, ...] | None = option(
        "advertised.listeners",
        default=None,
        valid=words(),
        doc="What clients are told to connect to, when that is not what listeners says.",
    )
    listener_security_protocol_map: str = option(
        "listener.security.protocol.map",
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="Which protocol each listener name speaks: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.",
    )
    controller_listener_names: tuple[str, ...] = option(
        "controller.listener.names",
        default=(),
        valid=words(empty=True),
        doc="Listener names that belong to Kafka's controller; they are not opened.",
    )
    metrics_listener: str = option(
        "metrics.listener",
        default="127.0.0.1:9308",
        valid=Validator("host:port", check_address),
        doc="Where metrics, health and the web page are served over HTTP; empty turns it off. "
        "Kafka has no such option.",
    )
    odradek_admin_token: password | None = option(
        "odradek.admin.token",
        default=None,
        valid=TOKEN,
        doc="What a request over HTTP has to show (Authorization: Bearer …) to change anything: "
        "to have the cleaner run, or try again what failed. By default a random one, new at "
        "each start, in the file odradek-admin-token of the first log directory and printed.",
    )
    log_dir: tuple[str, ...] = option(
        "log.dir",
        default=("./data",),
        valid=words(),
        doc="The directory of the data when log.dirs is not set. The default is under the "
        "directory that the broker is started in; Kafka's is /tmp/kafka-logs.",
    )
    log_dirs: tuple[str, ...] | None = option(
        "log.dirs",
        default=None,
        valid=words(),
        doc="The directories of the data; each new partition goes to the one with the fewest.",
    )

    # Connections and requests.

    socket_request_max_bytes: int32 = option(
        "socket.request.max.bytes",
        default=100 * 1024 * 1024,
        valid=at_least(1),
        doc="The largest request; a larger one closes its connection.",
    )
    max_request_partition_size_limit: int32 = option(
        "max.request.partition.size.limit",
        default=2000,
        valid=at_least(1),
        doc="How many partitions one DescribeTopicPartitions response tells of at most.",
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
        doc="How many bytes of requests may be received or wait for the disk, of all connections, "
        "before no further one is begun; -1 is no limit.",
    )
    odradek_unsent_bytes_max: int64 = option(
        "odradek.unsent.bytes.max",
        default=256 * 1024 * 1024,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many bytes of responses may wait for clients that read slowly; past that each "
        "fetch is answered with one batch.",
    )
    connections_max_idle_ms: int64 = option(
        "connections.max.idle.ms",
        default=600_000,
        doc="How long a connection may be silent before it is closed; below 0 is for ever.",
    )
    max_connections_per_ip: int32 = option(
        "max.connections.per.ip",
        default=INT32_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many connections one address may have; one more is closed at once.",
    )
    max_connections_per_ip_overrides: str = option(
        "max.connections.per.ip.overrides",
        default="",
        valid=Validator("host:count,...", check_host_counts),
        dynamic="cluster-wide",
        doc="Other limits than max.connections.per.ip for some hosts.",
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
        doc="How many partitions a fetch session may have; a client that fetches more of them "
        "names all in every request.",
    )
    odradek_fetch_hurry: bool = option(
        "odradek.fetch.hurry",
        default=True,
        dynamic="cluster-wide",
        doc="Whether a fetch that waits for records is answered with what there is once the "
        "client sends another request, no fetch, on the same connection. Without this, as in "
        "Kafka, that request waits for the fetch, and fetch.min.bytes holds for clients that "
        "send all their requests on one connection.",
    )
    fetch_max_bytes: int32 = option(
        "fetch.max.bytes",
        default=55 * 1024 * 1024,
        valid=at_least(1024),
        doc="The most that one fetch is answered with, whatever it asked for; one batch "
        "is sent even if it is larger.",
    )
    num_io_threads: int32 = option(
        "num.io.threads",
        default=8,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="How many threads do what would block the event loop: cold reads and flushes.",
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
        doc="Whether a partition whose directory is gone is made again, empty, at the start. "
        "Without this it is offline, since a disk may just not be there.",
    )
    odradek_open_files_max: int32 = option(
        "odradek.open.files.max",
        default=4096,
        valid=at_least(16),
        doc="How many files of partitions are kept open; those not used lately are closed and "
        "opened again when they are needed. At most half of what the system allows the process.",
    )
    telemetry_max_bytes: int32 = option(
        "telemetry.max.bytes",
        default=1024 * 1024,
        valid=at_least(1),
        doc="The largest compressed metrics that a client may push at once (KIP-714).",
    )
    odradek_telemetry_series_max: int32 = option(
        "odradek.telemetry.series.max",
        default=100_000,
        valid=at_least(0),
        doc="How many values that clients pushed are kept for /metrics, of all clients together. "
        "With their names and labels they take 2 KiB each on average at most.",
    )
    odradek_group_series_max: int32 = option(
        "odradek.group.series.max",
        default=10_000,
        valid=at_least(0),
        doc="How many partitions /metrics tells offsets and lag for, of all consumer groups; as "
        "many of share groups.",
    )
    num_recovery_threads_per_data_dir: int32 = option(
        "num.recovery.threads.per.data.dir",
        default=2,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="How many threads per data directory load and recover logs at the start.",
    )

    # Topics. What one may set itself is declared with TopicConfig, under both names.

    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        default=True,
        doc="Whether asking for a topic that does not exist creates it.",
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
        doc="How many partitions a topic gets when its creator does not say.",
    )
    default_replication_factor: int32 = option(
        "default.replication.factor",
        default=1,
        doc="How many replicas a partition gets when its creator does not say.",
    )

    # Logs.

    log_retention_check_interval_ms: int64 = option(
        "log.retention.check.interval.ms",
        default=300_000,
        valid=at_least(1),
        doc="How often the broker looks for segments that retention lets it drop.",
    )
    log_initial_task_delay_ms: int64 = option(
        "log.initial.task.delay.ms",
        default=30_000,
        valid=at_least(0),
        internal=True,
        doc="How long after the start the first round of retention and checkpoints waits.",
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
        doc="How often recovery points are written down; a crash re-reads what follows them.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int32 = option(
        "log.flush.start.offset.checkpoint.interval.ms",
        default=60_000,
        valid=at_least(0),
        doc="How often log start offsets are written down.",
    )

    # The cleaner.

    log_cleaner_enable: bool = option(
        "log.cleaner.enable",
        default=True,
        doc="Whether compacted topics are cleaned. Without it they grow for ever.",
    )
    log_cleaner_threads: int32 = option(
        "log.cleaner.threads",
        default=1,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many threads clean.",
    )
    log_cleaner_backoff_ms: int64 = option(
        "log.cleaner.backoff.ms",
        default=15_000,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How long a cleaner thread rests when no log needs cleaning.",
    )
    log_cleaner_dedupe_buffer_size: int64 = option(
        "log.cleaner.dedupe.buffer.size",
        default=128 * 1024 * 1024,
        dynamic="cluster-wide",
        doc="The most memory that all cleaner threads together use to index keys. It is taken "
        "as needed and given back, where Kafka takes all of it at the start.",
    )
    log_cleaner_io_buffer_size: int32 = option(
        "log.cleaner.io.buffer.size",
        default=512 * 1024,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The memory that all cleaner threads together read and write through.",
    )
    log_cleaner_io_buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        default=0.9,
        dynamic="cluster-wide",
        doc="How full the index of keys may get. Fuller holds more keys and finds them slower.",
    )
    log_cleaner_io_max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        default=DOUBLE_MAX,
        dynamic="cluster-wide",
        doc="The most that all cleaner threads together read and write in a second.",
    )

    log_cleaner_verify: bool = option(
        "log.cleaner.verify",
        default=False,
        dynamic="cluster-wide",
        doc="Whether each cleaning proves, before its output takes the place of the log's "
        "segments, that exactly the surviving records are in it. It reads the log's dirty section "
        "once more, and what is rewritten twice more, in plain Python: some 30 times slower. "
        "Meanwhile it keeps each key of the dirty section in memory, with 130 bytes beside it.",
    )
    odradek_cleaner_spill_bytes_max: int64 = option(
        "odradek.cleaner.spill.bytes.max",
        default=16 * 1024**3,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The most that all cleaner threads together write to temporary files, 20 bytes per "
        "record, when a log has more keys than log.cleaner.dedupe.buffer.size allows for. A log "
        "that would need more is cleaned in several runs.",
    )

    # Consumer groups and their offsets.

    group_min_session_timeout_ms: int32 = option(
        "group.min.session.timeout.ms",
        default=6_000,
        doc="The shortest session timeout that a member may ask for.",
    )
    group_max_session_timeout_ms: int32 = option(
        "group.max.session.timeout.ms",
        default=1_800_000,
        doc="The longest session timeout that a member may ask for.",
    )
    group_initial_rebalance_delay_ms: int32 = option(
        "group.initial.rebalance.delay.ms",
        default=3_000,
        doc="How long an empty group waits for more members before its first rebalance.",
    )
    group_max_size: int32 = option(
        "group.max.size",
        default=INT32_MAX,
        valid=at_least(1),
        doc="How many members a group may have.",
    )
    offset_metadata_max_bytes: int32 = option(
        "offset.metadata.max.bytes",
        default=4096,
        doc="The longest note that may be committed with an offset.",
    )
    offsets_commit_timeout_ms: int32 = option(
        "offsets.commit.timeout.ms",
        inert="Accepted without effect: a commit is answered when the disk has it or refuses it.",
        default=5_000,
        valid=at_least(1),
        doc="How long a commit may wait to be written before the client is told to retry.",
    )
    offsets_retention_minutes: int32 = option(
        "offsets.retention.minutes",
        default=7 * 24 * 60,
        valid=at_least(1),
        doc="How long the offsets of a group without members are kept.",
    )
    offsets_retention_check_interval_ms: int64 = option(
        "offsets.retention.check.interval.ms",
        default=600_000,
        valid=at_least(1),
        doc="How often the broker looks for offsets past their retention.",
    )
    offsets_topic_compression_codec: int32 = option(
        "offsets.topic.compression.codec",
        default=0,
        doc="The codec of batches in __consumer_offsets, by its number on the wire.",
    )
    offsets_topic_num_partitions: int32 = option(
        "offsets.topic.num.partitions",
        default=50,
        valid=at_least(1),
        doc="How many partitions __consumer_offsets is created with. A group's partition "
        "follows from this, so it must not change afterwards.",
    )
    offsets_topic_replication_factor: int16 = option(
        "offsets.topic.replication.factor",
        inert="Accepted without effect: a partition has one replica.",
        default=1,
        valid=at_least(1),
        doc="How many replicas __consumer_offsets is created with. Kafka's default is 3.",
    )
    offsets_topic_segment_bytes: int32 = option(
        "offsets.topic.segment.bytes",
        default=100 * 1024 * 1024,
        valid=at_least(1),
        doc="The segment size of __consumer_offsets; a smaller one is cleaned sooner.",
    )

    # Idempotent producers and transactions.

    producer_id_expiration_ms: int32 = option(
        "producer.id.expiration.ms",
        default=DAY_MS,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="How long a partition remembers the sequence numbers of a silent producer.",
    )
    producer_id_expiration_check_interval_ms: int32 = option(
        "producer.id.expiration.check.interval.ms",
        default=600_000,
        valid=at_least(1),
        internal=True,
        doc="How often partitions look for producers to forget.",
    )
    transactional_id_expiration_ms: int32 = option(
        "transactional.id.expiration.ms",
        default=7 * DAY_MS,
        valid=at_least(1),
        doc="How long a transactional id is remembered after its last transaction.",
    )
    transaction_max_timeout_ms: int32 = option(
        "transaction.max.timeout.ms",
        default=900_000,
        valid=at_least(1),
        doc="The longest transaction timeout that a producer may ask for.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int32 = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        default=10_000,
        valid=at_least(1),
        doc="How often the broker looks for transactions to abort because they timed out.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int32 = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        default=HOUR_MS,
        valid=at_least(1),
        doc="How often the broker looks for transactional ids to forget.",
    )
    transaction_partition_verification_enable: bool = option(
        "transaction.partition.verification.enable",
        default=True,
        dynamic="cluster-wide",
        doc="Whether a transactional write is checked to belong to an open transaction.",
    )
    transaction_state_log_min_isr: int32 = option(
        "transaction.state.log.min.isr",
        default=1,
        valid=at_least(1),
        doc="The min.insync.replicas of __transaction_state. Kafka's default is 2.",
    )
    transaction_state_log_num_partitions: int32 = option(
        "transaction.state.log.num.partitions",
        default=50,
        valid=at_least(1),
        doc="How many partitions __transaction_state is created with. A transactional id's "
        "partition follows from this, so it must not change afterwards.",
    )
    transaction_state_log_replication_factor: int16 = option(
        "transaction.state.log.replication.factor",
        inert="Accepted without effect: a partition has one replica.",
        default=1,
        valid=at_least(1),
        doc="How many replicas __transaction_state is created with. Kafka's default is 3.",
    )
    transaction_state_log_segment_bytes: int32 = option(
        "transaction.state.log.segment.bytes",
        default=100 * 1024 * 1024,
        valid=at_least(1),
        doc="The segment size of __transaction_state; a smaller one is cleaned sooner.",
    )

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories of the data: log.dirs, or else log.dir."""
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @property
    def bound_endpoints(self) -> tuple[Listener, ...]:
        """Where to listen; ConfigError when it cannot be told or served."""
        return bound_listeners(self._listener_settings())

    @property
    def advertised_endpoints(self) -> tuple[Listener, ...]:
        """What to tell clients; an empty host or port 0 is to be filled in once bound."""
        return advertised_listeners(self._listener_settings())

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The host and port of the HTTP listener, or None for none."""
        return parse_address("metrics.listener", self.metrics_listener)

    @property
    def connections_per_host(self) -> dict[str, int]:
        """The limits of hosts that have their own, by host name or address."""
        return parse_host_counts(self.max_connections_per_ip_overrides)

    def _listener_settings(self) -> ListenerSettings:
        return ListenerSettings(
            self.listeners,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            self.controller_listener_names,
        )
