"""The broker's counters. The page and broker/observability/exposition (/metrics) show them.

Counters are plain integers, since a Prometheus counter's lock would cost more than the request
that it counts.
"""

from __future__ import annotations

from collections import defaultdict

from odradek.broker.counters.authorization import AuthorizationCounts
from odradek.broker.counters.latency import Times
from odradek.broker.counters.topics import TopicCounts

# A number holds both an API key and a version.
_VERSION_BITS = 8


class Metrics:
    """The broker's own counts; the event loop owns them."""

    __slots__ = (
        "_requests",
        "all_topics",
        "authentications",
        "authorizations",
        "errors",
        "failed_requests",
        "malformed_requests",
        "otlp_failures",
        "otlp_pushes",
        "refused_batches",
        "times",
        "topics",
    )

    def __init__(self) -> None:
        self._requests: defaultdict[int, int] = defaultdict(int)
        self.errors: defaultdict[tuple[int, int], int] = defaultdict(int)  # by API key and code
        self.times: defaultdict[int, Times] = defaultdict(Times)  # by API key
        # By listener and Kafka's name of the event ("failed_authentication").
        self.authentications: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.authorizations = AuthorizationCounts()
        self.all_topics = TopicCounts()
        self.topics: defaultdict[str, TopicCounts] = defaultdict(TopicCounts)
        self.malformed_requests = 0
        self.failed_requests = 0
        self.refused_batches = 0
        self.otlp_pushes = 0
        self.otlp_failures = 0

    def count_request(self, api_key: int, version: int) -> None:
        """Count a request."""
        self._requests[api_key << _VERSION_BITS | version] += 1

    def count_error(self, api_key: int, code: int) -> None:
        """Count an answer with an error."""
        self.errors[api_key, code] += 1

    @property
    def requests(self) -> dict[tuple[int, int], int]:
        """The requests by API key and version."""
        return {
            (one >> _VERSION_BITS, one & ((1 << _VERSION_BITS) - 1)): count
            for one, count in self._requests.items()
        }

    @property
    def request_total(self) -> int:
        """All requests."""
        return sum(self._requests.values())

    def request_count(self, api_key: int) -> int:
        """Return the requests of an API, in all versions."""
        return sum(count for (key, _), count in self.requests.items() if key == api_key)

    async def turn_minute(self) -> None:
        """Note that a minute has passed, for the values of the last few minutes."""
        for times in self.times.values():
            times.turn_minute()
        self.authorizations.turn_minute()

    def forget_topic(self, name: str) -> None:
        """Drop the counts of a topic that is gone; the counts of all topics keep its share."""
        self.topics.pop(name, None)
