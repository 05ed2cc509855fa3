"""Kafka's options that have no meaning here, accepted so that Kafka's server.properties loads.

The broker checks their type and describes them to clients as Kafka would; they do nothing. Each
row of a table is a name, a type, a default (`-` for none, `""` for empty), then the update mode
of a running broker, and `internal` for options that Kafka hides. Where Kafka's default is a Java
class, the default here is none.
"""

from collections.abc import Iterator

from odradek.config.option import Option, Update
from odradek.config.values import Kind, parse
from odradek.dataclass import dataclass

_UPDATES: tuple[Update, ...] = ("cluster-wide", "per-broker")


@dataclass(frozen=True, slots=True)
class InertGroup:
    """Options that do nothing for one reason. Setting one of a loud group causes a warning."""

    title: str
    reason: str
    options: tuple[Option, ...]
    loud: bool


def _group(title: str, reason: str, table: str, *, loud: bool = False) -> InertGroup:
    rows = tuple(_rows(reason, table))
    return InertGroup(title, reason, rows, loud)


def _rows(reason: str, table: str) -> Iterator[Option]:
    for row in table.strip().splitlines():
        name, word, default, *marks = row.split()
        kind = Kind[word]
        yield Option(
            name=name,
            kind=kind,
            default=None if default == "-" else parse(kind, name, default.strip('"')),
            doc="Accepted without effect.",
            dynamic=next((update for update in _UPDATES if update in marks), ""),
            internal="internal" in marks,
            inert=reason,
        )


INERT_GROUPS = (
    _group(
        "KRaft",
        "The broker keeps the metadata itself, so there is no controller to reach.",
        """
        controlled.shutdown.enable BOOLEAN true
        controller.performance.always.log.threshold.ms LONG 2000 internal
        controller.performance.sample.period.ms LONG 60000 internal
        controller.quorum.append.linger.ms INT 25
        controller.quorum.auto.join.enable BOOLEAN false
        controller.quorum.bootstrap.servers LIST ""
        controller.quorum.election.backoff.max.ms INT 1000
        controller.quorum.election.timeout.ms INT 1000
        controller.quorum.fetch.max.bytes INT 1048576
        controller.quorum.fetch.snapshot.max.bytes INT 1048576
        controller.quorum.fetch.timeout.ms INT 2000
        controller.quorum.request.timeout.ms INT 2000
        controller.quorum.retry.backoff.ms INT 20
        controller.quorum.voters LIST ""
        controller.socket.timeout.ms INT 30000
        initial.broker.registration.timeout.ms INT 60000
        internal.metadata.delete.delay.millis LONG 60000 internal
        internal.metadata.log.segment.bytes INT - internal
        internal.metadata.max.batch.size.in.bytes INT 8388608 internal
        metadata.log.dir STRING -
        metadata.log.max.record.bytes.between.snapshots LONG 20971520
        metadata.log.max.snapshot.interval.ms LONG 3600000
        metadata.log.segment.bytes INT 1073741824
        metadata.log.segment.ms LONG 604800000
        metadata.max.idle.interval.ms INT 500
        metadata.max.retention.bytes LONG 104857600
        metadata.max.retention.ms LONG 604800000
        server.max.startup.time.ms LONG 9223372036854775807 internal
        unstable.api.versions.enable BOOLEAN false internal
        unstable.feature.versions.enable BOOLEAN false internal
        """,
    ),
    _group(
        "Replication",
        "Partitions have one replica. Brokers ask each other about transactions and share groups, "
        "and copy a partition that moves.",
        """
        add.partitions.to.txn.retry.backoff.max.ms INT 100
        add.partitions.to.txn.retry.backoff.ms INT 20
        auto.leader.rebalance.enable BOOLEAN true
        early.start.listeners LIST -
        leader.imbalance.check.interval.seconds LONG 300
        num.replica.alter.log.dirs.threads INT -
        num.replica.fetchers INT 1 cluster-wide
        replica.fetch.backoff.ms INT 1000
        replica.fetch.max.bytes INT 1048576
        replica.fetch.min.bytes INT 1
        replica.fetch.response.max.bytes INT 10485760
        replica.fetch.wait.max.ms INT 500
        replica.high.watermark.checkpoint.interval.ms LONG 5000
        replica.lag.time.max.ms LONG 30000
        replica.selector.class STRING -
        replica.socket.receive.buffer.bytes INT 65536
        replica.socket.timeout.ms INT 30000
        request.timeout.ms INT 30000
        sasl.mechanism.controller.protocol STRING GSSAPI
        socket.connection.setup.timeout.max.ms LONG 30000
        socket.connection.setup.timeout.ms LONG 10000
        unclean.leader.election.interval.ms LONG 300000 internal
        """,
    ),
    _group(
        "The process",
        "One event loop serves all connections, and nothing here needs these settings.",
        """
        cordoned.log.dirs LIST "" per-broker
        delete.records.purgatory.purge.interval.requests INT 1
        fetch.purgatory.purge.interval.requests INT 1000
        log.dir.failure.timeout.ms LONG 30000
        num.network.threads INT 3 cluster-wide
        producer.purgatory.purge.interval.requests INT 1000
        transaction.state.log.load.buffer.size INT 5242880
        """,
    ),
    _group(
        "Two-phase commit",
        "It needs a version of InitProducerId that Kafka 4.3 does not announce either.",
        """
        transaction.two.phase.commit.enable BOOLEAN false
        """,
    ),
    _group(
        "The group coordinator",
        "The event loop decides on groups, and appends their records at once.",
        """
        group.consumer.assignor.offload.enable BOOLEAN true internal
        group.coordinator.append.linger.ms INT -1
        group.coordinator.background.threads INT 2
        group.coordinator.cached.buffer.max.bytes INT 1048588 cluster-wide
        group.coordinator.threads INT 4
        offsets.load.buffer.size INT 5242880
        """,
    ),
    _group(
        "Streams groups",
        "There is one assignor, and no warm-up tasks, as in Kafka 4.3.",
        """
        group.streams.acceptable.recovery.lag LONG 10000 internal
        group.streams.assignor.offload.enable BOOLEAN true internal
        group.streams.assignors LIST sticky
        group.streams.max.warmup.replicas INT 20 internal
        group.streams.min.task.offset.interval.ms INT 15000 internal
        group.streams.num.warmup.replicas INT 2 internal
        group.streams.rack.aware.assignment.tags LIST ""
        group.streams.task.offset.interval.ms INT 60000 internal
        group.streams.topology.description.plugin.class CLASS -
        """,
    ),
    _group(
        "Share groups",
        "There is one assignor, and no dead letter queue.",
        """
        errors.deadletterqueue.auto.create.topics.enable BOOLEAN false
        errors.deadletterqueue.topic.name.prefix STRING dlq.
        group.share.assignor.offload.enable BOOLEAN true internal
        group.share.assignors LIST simple
        group.share.dlq.manager.class.name STRING - internal
        """,
    ),
    _group(
        "Tiered storage",
        "There is no tiered storage.",
        """
        follower.fetch.last.tiered.offset.enable BOOLEAN false cluster-wide
        remote.fetch.max.wait.ms INT 500 cluster-wide
        remote.list.offsets.request.timeout.ms LONG 30000 cluster-wide
        remote.log.index.file.cache.total.size.bytes LONG 1073741824 cluster-wide
        remote.log.index.file.cache.ttl.ms LONG 900000 internal
        remote.log.manager.copier.thread.pool.size INT 10 cluster-wide
        remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 cluster-wide
        remote.log.manager.copy.quota.window.num INT 11
        remote.log.manager.copy.quota.window.size.seconds INT 1
        remote.log.manager.expiration.thread.pool.size INT 10 cluster-wide
        remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 cluster-wide
        remote.log.manager.fetch.quota.window.num INT 11
        remote.log.manager.fetch.quota.window.size.seconds INT 1
        remote.log.manager.follower.thread.pool.size INT 2 cluster-wide
        remote.log.manager.task.interval.ms LONG 30000
        remote.log.manager.task.retry.backoff.max.ms LONG 30000 internal
        remote.log.manager.task.retry.backoff.ms LONG 500 internal
        remote.log.manager.task.retry.jitter DOUBLE 0.2 internal
        remote.log.manager.thread.pool.size INT 2
        remote.log.metadata.custom.metadata.max.bytes INT 128
        remote.log.metadata.manager.class.name STRING -
        remote.log.metadata.manager.class.path STRING -
        remote.log.metadata.manager.impl.prefix STRING rlmm.config.
        remote.log.metadata.manager.listener.name STRING -
        remote.log.reader.max.pending.tasks INT 100
        remote.log.reader.threads INT 10 cluster-wide
        remote.log.storage.manager.class.name STRING -
        remote.log.storage.manager.class.path STRING -
        remote.log.storage.manager.impl.prefix STRING rsm.config.
        remote.log.storage.system.enable BOOLEAN false
        """,
    ),
    _group(
        "Quotas of replication",
        "Copies to other brokers keep to their rates within a second. Moves between directories "
        "have no quota.",
        """
        alter.log.dirs.replication.quota.window.num INT 11
        alter.log.dirs.replication.quota.window.size.seconds INT 1
        replication.quota.window.num INT 11
        replication.quota.window.size.seconds INT 1
        """,
    ),
    _group(
        "Metrics",
        "Metrics are served at metrics.listener, not by reporters.",
        """
        kafka.metrics.polling.interval.secs INT 10
        kafka.metrics.reporters LIST ""
        metric.reporters LIST - cluster-wide
        metrics.num.samples INT 2
        metrics.recording.level STRING INFO
        metrics.sample.window.ms LONG 30000
        """,
    ),
    _group(
        "Plugins",
        "Java classes cannot be loaded.",
        """
        alter.config.policy.class.name CLASS -
        client.quota.callback.class CLASS -
        create.topic.policy.class.name CLASS -
        principal.builder.class CLASS - per-broker
        ssl.engine.factory.class CLASS - per-broker
        """,
        loud=True,
    ),
    _group(
        "Java's SASL",
        "A broker with a keytab renews no tickets, and Java classes cannot be loaded.",
        """
        sasl.client.callback.handler.class CLASS -
        sasl.kerberos.kinit.cmd STRING /usr/bin/kinit per-broker
        sasl.kerberos.min.time.before.relogin LONG 60000 per-broker
        sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 per-broker
        sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 per-broker
        sasl.login.callback.handler.class CLASS -
        sasl.login.class CLASS -
        sasl.login.connect.timeout.ms INT -
        sasl.login.read.timeout.ms INT -
        sasl.login.refresh.buffer.seconds SHORT 300 per-broker
        sasl.login.refresh.min.period.seconds SHORT 60 per-broker
        sasl.login.refresh.window.factor DOUBLE 0.8 per-broker
        sasl.login.refresh.window.jitter DOUBLE 0.05 per-broker
        sasl.login.retry.backoff.max.ms LONG 10000
        sasl.login.retry.backoff.ms LONG 100
        sasl.server.callback.handler.class CLASS -
        security.providers STRING -
        """,
        loud=True,
    ),
    _group(
        "OAuth of clients",
        "These are for clients that ask a provider for tokens; the broker only checks tokens.",
        """
        sasl.oauthbearer.allow.unverified.audience BOOLEAN false
        sasl.oauthbearer.allow.unverified.issuer BOOLEAN false
        sasl.oauthbearer.assertion.algorithm STRING RS256
        sasl.oauthbearer.assertion.claim.aud STRING -
        sasl.oauthbearer.assertion.claim.exp.seconds INT 300
        sasl.oauthbearer.assertion.claim.iss STRING -
        sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false
        sasl.oauthbearer.assertion.claim.nbf.seconds INT 60
        sasl.oauthbearer.assertion.claim.sub STRING -
        sasl.oauthbearer.assertion.file STRING -
        sasl.oauthbearer.assertion.private.key.file STRING -
        sasl.oauthbearer.assertion.private.key.passphrase PASSWORD -
        sasl.oauthbearer.assertion.template.file STRING -
        sasl.oauthbearer.client.credentials.client.id STRING -
        sasl.oauthbearer.client.credentials.client.secret PASSWORD -
        sasl.oauthbearer.jwt.retriever.class CLASS -
        sasl.oauthbearer.jwt.validator.class CLASS -
        sasl.oauthbearer.scope STRING -
        sasl.oauthbearer.token.endpoint.url STRING -
        """,
        loud=True,
    ),
    _group(
        "TLS",
        "OpenSSL implements TLS, not Java.",
        """
        ssl.keymanager.algorithm STRING SunX509 per-broker
        ssl.protocol STRING TLSv1.3 per-broker
        ssl.provider STRING - per-broker
        ssl.secure.random.implementation STRING - per-broker
        ssl.trustmanager.algorithm STRING PKIX per-broker
        """,
    ),
)

INERT = tuple(option for group in INERT_GROUPS for option in group.options)

# Kafka has removed these, most of them with ZooKeeper in 4.0.
REMOVED_PREFIXES = ("zookeeper.", "password.encoder.")
REMOVED = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "eligible.leader.replicas.enable",
        "group.coordinator.new.enable",
        "host.name",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "port",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    }
)


def is_removed(name: str) -> bool:
    """Return whether a name was an option of an older Kafka."""
    return name in REMOVED or name.startswith(REMOVED_PREFIXES)
