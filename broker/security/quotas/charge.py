"""Counts the cost of one request against the quotas of its client.

    begun     a charge is created for a decoded request, where there are quotas
    served    changed partitions are counted; produced bytes, once they are appended; fetched
              bytes, before the fetch session changes
    answered  the rest is counted, and the response says how long to wait
    written   the time to write the response is counted, too; a later response includes it

Time is the event loop's: the steps of a request count, its waiting does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

from odradek.broker.security.quotas.clients import ClientQuotas, RateQuota, TooManyMutations
from odradek.config.values import INT32_MAX
from odradek.protocol.frames import PRODUCE_KEY

T = TypeVar("T")

_SHARE_FETCH_KEY = 78
_PERCENT_OF_NS = 100 / 1e9


class Charge:
    """One request's account; its ChargedServing owns it."""

    __slots__ = (
        "_api_key",
        "_busy_ns",
        "_client_id",
        "_is_muted",
        "_is_settled",
        "_mutation_until_ms",
        "_quotas",
        "_since_ns",
        "_size_bytes",
        "_user",
        "throttle_ms",
    )

    def __init__(
        self, quotas: ClientQuotas, user: str, client_id: str, api_key: int, size_bytes: int,
        begun_ns: int,
    ) -> None:  # fmt: skip
        """Begin; `size_bytes` is the size of the request without its header."""
        self._quotas, self._user, self._client_id = quotas, user, client_id
        self._api_key, self._size_bytes = api_key, size_bytes
        self._since_ns, self._busy_ns = begun_ns, 0
        self._is_settled = self._is_muted = False
        self._mutation_until_ms = 0
        self.throttle_ms = 0

    def resume(self) -> None:
        """Begin to count time again."""
        self._since_ns = perf_counter_ns()

    def pause(self) -> None:
        """Count the time since the last pause or resume."""
        now_ns = perf_counter_ns()
        self._busy_ns += now_ns - self._since_ns
        self._since_ns = now_ns

    def count_ns(self, time_ns: int) -> None:
        """Count the time that a thread has spent on the request."""
        self._busy_ns += time_ns

    def metered(self, answer: Awaitable[T]) -> Awaitable[T]:
        """Return an answer whose steps on the event loop are counted."""
        return _Metered(answer, self) if self._quotas.request.limits else answer

    def fetch_bytes_max(self) -> int:
        """Return the number of bytes above which a fetch certainly has to wait."""
        sensor = self._quotas.fetch.find(self._user, self._client_id, self._quotas.now_ms())
        return INT32_MAX if sensor is None else self._quotas.fetch.at_once(sensor)

    def settle_fetch(self, size_bytes: int) -> int:
        """Count the bytes of a fetch's answer; return for how long the client has to wait.

        If it has to, its answer is empty and no bytes count (KafkaApis.handleFetchRequest).
        """
        quotas, now_ms = self._quotas, self._quotas.now_ms()
        sensor = self._settle(quotas.fetch, size_bytes, counts_time=True)
        if self.throttle_ms and sensor is not None:
            sensor.rate.record(-size_bytes, now_ms)
        return self.throttle_ms

    def settle_produce(self, *, is_answered: bool) -> None:
        """Count the produced bytes, once appended: other requests may follow before the answer.

        As in Kafka, the time does not count when there is no answer.
        """
        if not self._is_settled:
            self._settle(self._quotas.produce, self._size_bytes, counts_time=is_answered)

    def settle(self, answer: Any, answer_bytes: Callable[[], int]) -> None:
        """Count the rest of the request, and put the client's waiting time into the answer.

        `answer_bytes` is called for the size of the answer, where the quota counts it.
        """
        if self._api_key == PRODUCE_KEY:
            self.settle_produce(is_answered=answer is not None)
        elif not self._is_settled:
            if self._api_key == _SHARE_FETCH_KEY and self._quotas.fetch.limits:
                self._settle(self._quotas.fetch, answer_bytes(), counts_time=True)
            else:
                self._settle(None, 0, counts_time=True)
        if self.throttle_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = self.throttle_ms

    def take_mute_s(self) -> float:
        """Return for how long to stop reading from the client; 0 after the first call."""
        if self._is_muted or not self._is_settled:
            return 0.0
        self._is_muted = True
        return self.throttle_ms / 1000

    def close(self) -> None:
        """Count the time to write the response; a later response includes it."""
        if self._quotas.request.limits:
            self.pause()
            now_ms = self._quotas.now_ms()
            sensor = self._quotas.request.find(self._user, self._client_id, now_ms)
            if sensor is not None:
                sensor.rate.record(self._busy_ns * _PERCENT_OF_NS, now_ms)

    def spend(self, count: int, *, is_strict: bool) -> None:
        """Count partitions that are created or deleted.

        Raises Refusal when the quota is strict and the client has to wait first.
        """
        quotas, now_ms = self._quotas, self._quotas.now_ms()
        try:
            throttle_ms = quotas.mutations.spend(
                self._user, self._client_id, count, now_ms, is_strict=is_strict
            )
        except TooManyMutations as refusal:
            self._mutation_until_ms = now_ms + refusal.throttle_ms
            raise
        if throttle_ms:
            self._mutation_until_ms = now_ms + throttle_ms

    def _settle(self, quota: RateQuota | None, size_bytes: int, *, counts_time: bool) -> Any:
        """Count bytes and time; return the sensor of the bytes."""
        quotas, now_ms = self._quotas, self._quotas.now_ms()
        self._is_settled = True
        request_ms = self._count_time(now_ms) if counts_time else 0
        other_ms, held = max(0, self._mutation_until_ms - now_ms), None
        if other_ms:
            found = quotas.mutations.limits.find(self._user, self._client_id)
            held = found and quotas.mutations.sensors.use(*found, now_ms)
        sensor = None
        if quota is not None and quota.limits:
            sensor = quota.find(self._user, self._client_id, now_ms)
            if sensor is not None:
                sensor.rate.record(size_bytes, now_ms)
                other_ms, held = quota.throttle_ms(sensor, now_ms), sensor
        self.throttle_ms = max(request_ms, other_ms)
        if self.throttle_ms:
            if other_ms <= request_ms:
                held = quotas.request.find(self._user, self._client_id, now_ms)
            if held is not None:
                held.throttled.record(self.throttle_ms, now_ms)
        return sensor

    def _count_time(self, now_ms: int) -> int:
        quota = self._quotas.request
        sensor = quota.find(self._user, self._client_id, now_ms) if quota.limits else None
        if sensor is None:
            return 0
        self.pause()
        sensor.rate.record(self._busy_ns * _PERCENT_OF_NS, now_ms)
        self._busy_ns = 0
        return quota.throttle_ms(sensor, now_ms)


class _Metered(Generic[T]):
    """An answer whose steps are timed."""

    __slots__ = ("_answer", "_charge")

    def __init__(self, answer: Awaitable[T], charge: Charge) -> None:
        self._answer, self._charge = answer, charge

    def __await__(self) -> Generator[Any, Any, T]:
        """Run step by step, and time each step."""
        steps, charge = self._answer.__await__(), self._charge
        thrown: BaseException | None = None
        while True:
            charge.resume()
            try:
                awaited = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                charge.pause()
            thrown = None
            try:
                yield awaited
            except BaseException as error:  # passed on to the awaited answer
                thrown = error
