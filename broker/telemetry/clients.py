"""The clients that push their metrics: their subscriptions, intervals and values (KIP-714).

    GetTelemetrySubscriptions   returns the metrics that the client should push, from the
                                subscriptions that match it, and the id of that set
    PushTelemetry               brings the metrics; refused when they come too early, are too
                                large, or are for another set than the one in force

The refusals, their order and their codes are those of Kafka's ClientMetricsManager. The metrics
are kept for /metrics until the client has been silent for three intervals.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from functools import partial

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal
from odradek.broker.ids import is_reserved
from odradek.broker.metadata.resource_configs import ResourceConfigs
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.broker.orders.java import hash_order
from odradek.broker.telemetry.reader import Reader
from odradek.broker.telemetry.series import Sample, Series
from odradek.config.client_metrics import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    InvalidSubscription,
    Subscription,
    read_subscription,
)
from odradek.config.errors import ConfigError
from odradek.dataclass import dataclass
from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest
from odradek.protocol.wire import ZERO_UUID, encode_uuid

logger = logging.getLogger(__name__)

# Kafka's bounds: the number of clients that are remembered, and for how long at least.
_CLIENTS_MAX = 16_384
_SILENCE_MS_MIN = 60_000
# The time between two lines for unreadable pushes: clients that make up ids may push at any time.
_COMPLAINT_MS = 1000
# A client's texts may have 32 KiB and more; they are cut to this length.
_TEXT_CHARACTERS_MAX = 256
# The bound of the average memory of a series; those of Kafka's clients take 1 KiB.
_SERIES_BYTES_MEAN_MAX = 2048
_OUTDATED = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The metrics that the subscriptions want of one client, and the id of that set."""

    metrics: Sequence[str]
    interval_ms: int
    subscription_id: int
    version: int


@dataclass(slots=True)
class Client:
    """A client instance; after a lost connection, only its `series` outlives its next request."""

    client_id: str
    attributes: Mapping[str, str]
    wanted: Wanted
    asked_ms: int = 0
    pushed_ms: int = 0
    has_ended: bool = False
    is_lost: bool = False
    # Its last push was refused because it has to ask for its subscription again.
    is_outdated: bool = False
    heard_ms: int = 0
    series: Series = field(default_factory=dict)
    series_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ClientRow:
    """The metrics of a client for /metrics."""

    client_id: str
    client_instance_id: str
    series: Series


class Telemetry:
    """The clients by instance id; the event loop owns it."""

    def __init__(
        self,
        resources: ResourceConfigs,
        now_ms: Callable[[], int],
        new_id: Callable[[], bytes],
        series_max: Callable[[], int],
        *,
        is_shown: bool = True,
    ) -> None:
        """Follow the subscriptions; `is_shown` says whether anything shows what clients push."""
        self._resources, self._now_ms, self._new_id = resources, now_ms, new_id
        self._series_max, self._is_shown = series_max, is_shown
        # Ordered by their last request, the latest last.
        self._clients: OrderedDict[bytes, Client] = OrderedDict()
        self._version = 0
        self._subscriptions: Sequence[Subscription] = ()
        self._series_count = self._series_bytes = 0
        self.dropped_series = 0
        # When a push was last logged as unreadable, and how many were not logged since.
        self._complained_ms = self._unreported = 0
        self.reader = Reader()
        self._read_subscriptions()
        resources.on_changed.append(self._follow)

    @property
    def is_announced(self) -> bool:
        """Whether ApiVersions offers the two APIs: some metrics are wanted, and shown.

        Kafka offers them only where a plugin receives the metrics. A client that sees them asks
        for its subscription, and librdkafka then logs a line for the id that it gets.
        """
        return self._is_shown and any(one.metrics for one in self._subscriptions)

    def subscribe(self, context: RequestContext, instance_id: bytes) -> tuple[bytes, Wanted]:
        """Return a client's id and the metrics that it should push.

        Raises Refusal when the client asks too early.
        """
        instance_id = instance_id if instance_id != ZERO_UUID else self._new_id()
        client, now_ms = self._client(context, instance_id), self._now_ms()
        if now_ms - max(client.asked_ms, client.pushed_ms) >= client.wanted.interval_ms:
            client.asked_ms = now_ms
        elif not client.is_outdated:
            raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.is_outdated = False
        return instance_id, client.wanted

    def admit(
        self, context: RequestContext, request: PushTelemetryRequest, size_max: int
    ) -> None:
        """Check a push, except the metrics in it. Raises Refusal."""
        if is_reserved(request.client_instance_id):
            raise Refusal(ErrorCode.INVALID_REQUEST)
        client = self._client(context, request.client_instance_id)
        client.is_outdated = False
        try:
            _check_push(client, request, self._now_ms(), size_max)
        except Refusal as refusal:
            client.is_outdated = refusal.code in _OUTDATED
            raise
        finally:
            client.has_ended = request.terminating

    def wants(self, instance_id: bytes) -> bool:
        """Return whether any subscription wants metrics of a known client.

        A push of another client gets the same answer, but is not read.
        """
        return bool(self._clients[instance_id].wanted.metrics)

    def keep(self, instance_id: bytes, samples: Sequence[Sample]) -> None:
        """Keep a client's samples, as far as there is room for new series."""
        client = self._clients.get(instance_id)
        if client is None:
            return
        count_max = self._series_max()
        for sample in samples:
            if sample.key not in client.series:
                bytes_after = self._series_bytes + sample.size_bytes
                is_full = self._series_count >= count_max
                if is_full or bytes_after > count_max * _SERIES_BYTES_MEAN_MAX:
                    self.dropped_series += 1
                    continue
                self._series_count += 1
                self._series_bytes = bytes_after
                client.series_bytes += sample.size_bytes
            before = client.series.get(sample.key, 0.0) if sample.is_delta else 0.0
            client.series[sample.key] = before + sample.value

    def complain(self, context: RequestContext, instance_id: bytes, error: Exception) -> None:
        """Log a push that cannot be read, unless one was logged just before."""
        now_ms = self._now_ms()
        if now_ms - self._complained_ms < _COMPLAINT_MS:
            self._unreported += 1
            return
        logger.warning(
            "refused telemetry client=%r instance=%s peer=%s unreported=%d: %s",
            context.client_id[:_TEXT_CHARACTERS_MAX],
            encode_uuid(instance_id),
            context.client_host,
            self._unreported,
            error,
        )
        self._complained_ms, self._unreported = now_ms, 0

    def rows(self) -> Sequence[ClientRow]:
        """Return the metrics of each client that is not silent."""
        self._forget_silent()
        return [
            ClientRow(client.client_id, encode_uuid(instance_id), dict(client.series))
            for instance_id, client in self._clients.items()
            if client.series
        ]

    def _client(self, context: RequestContext, instance_id: bytes) -> Client:
        """Return a client by its id: a new one, or one with the subscriptions in force."""
        client = self._clients.get(instance_id)
        if client is not None and self._is_silent(client):
            self._forget(instance_id)
            client = None
        if client is None or client.is_lost:
            attributes = _attributes(context, instance_id)
            client = self._begin(context, instance_id, attributes, client)
        elif client.wanted.version < self._version:
            client = self._begin(context, instance_id, client.attributes, client)
        client.heard_ms = self._now_ms()
        self._clients.move_to_end(instance_id)
        return client

    def _begin(
        self,
        context: RequestContext,
        instance_id: bytes,
        attributes: Mapping[str, str],
        before: Client | None,
    ) -> Client:
        """Add a client, in the place of its former state.

        It is lost when the connection closes that it began on, even if it uses another one. Of
        several that began on one connection, only the last is lost: Kafka remembers no more.
        """
        if before is None:
            # Not all silent ones: a client that makes up ids would cause a full search each time.
            while self._clients and self._is_silent(self._clients[next(iter(self._clients))]):
                self._forget(next(iter(self._clients)))
            if len(self._clients) >= _CLIENTS_MAX:
                self._forget(next(iter(self._clients)))
        wanted = self._wanted(attributes, instance_id)
        shown_id = attributes["client_id"]
        client = self._clients[instance_id] = Client(shown_id, attributes, wanted)
        if before is not None:
            client.series, client.series_bytes = before.series, before.series_bytes
        context.client.on_lost["telemetry"] = partial(self._lose, instance_id)
        return client

    def _lose(self, instance_id: bytes) -> None:
        client = self._clients.get(instance_id)
        if client is not None:
            client.is_lost = True

    def _wanted(self, attributes: Mapping[str, str], instance_id: bytes) -> Wanted:
        matching = [one for one in self._subscriptions if one.matches(attributes)]
        metrics = hash_order(name for one in matching for name in one.metrics)
        if ALL_METRICS in metrics:
            metrics = [ALL_METRICS]
        interval_ms = min((one.interval_ms for one in matching), default=INTERVAL_MS_DEFAULT)
        interval_ms = min(interval_ms, INTERVAL_MS_DEFAULT)
        number = subscription_id(metrics, interval_ms, instance_id)
        return Wanted(metrics, interval_ms, number, self._version)

    def _forget_silent(self) -> None:
        for instance_id, client in list(self._clients.items()):
            if self._is_silent(client):
                self._forget(instance_id)

    def _is_silent(self, client: Client) -> bool:
        silence_ms_max = max(_SILENCE_MS_MIN, 3 * client.wanted.interval_ms)
        return self._now_ms() - client.heard_ms > silence_ms_max

    def _forget(self, instance_id: bytes) -> None:
        client = self._clients.pop(instance_id)
        self._series_count -= len(client.series)
        self._series_bytes -= client.series_bytes

    def _follow(self, changed: Set[Resource]) -> None:
        if any(one.type is ResourceType.CLIENT_METRICS for one in changed):
            self._read_subscriptions()

    def _read_subscriptions(self) -> None:
        self._version += 1
        stored = self._resources.of_type(ResourceType.CLIENT_METRICS)
        subscriptions = []
        for name, values in stored.items():
            try:
                subscriptions.append(read_subscription(values))
            except (ConfigError, InvalidSubscription) as error:
                # An earlier release accepted it, with a pattern that takes exponential time.
                logger.error("left out client metrics subscription name=%r: %s", name, error)
        self._subscriptions = subscriptions


def subscription_id(metrics: Sequence[str], interval_ms: int, instance_id: bytes) -> int:
    """Return the id of the set of metrics that is wanted of a client.

    It is the CRC-32C of the set as Java prints it and the interval, XORed with Java's hash of the
    client's id.
    """
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    high, low = instance_id[:8], instance_id[8:]
    mixed = int.from_bytes(high, "big") ^ int.from_bytes(low, "big")
    number = (crc ^ mixed >> 32 ^ mixed) & 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


def _check_push(
    client: Client, request: PushTelemetryRequest, now_ms: int, size_max: int
) -> None:
    if client.has_ended:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    # The first push after a request for the subscription may come at any time, since clients
    # spread their pushes over the interval.
    may_push = client.asked_ms > client.pushed_ms
    may_push = may_push or now_ms - client.pushed_ms >= client.wanted.interval_ms
    if may_push:
        client.pushed_ms = now_ms
    elif not request.terminating:
        raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    if request.subscription_id != client.wanted.subscription_id:
        raise Refusal(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if request.compression_type not in set(Codec):
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics) > size_max:
        raise Refusal(ErrorCode.TELEMETRY_TOO_LARGE)


def _attributes(context: RequestContext, instance_id: bytes) -> Mapping[str, str]:
    return {
        "client_instance_id": encode_uuid(instance_id),
        "client_id": context.client_id[:_TEXT_CHARACTERS_MAX],
        "client_software_name": context.client.software_name[:_TEXT_CHARACTERS_MAX],
        "client_software_version": context.client.software_version[:_TEXT_CHARACTERS_MAX],
        "client_source_address": context.client_host.removeprefix("/"),
        "client_source_port": str(context.client.port),
    }
