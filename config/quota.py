"""Settings of quotas: the time over which rates are measured.

AlterClientQuotas, which kafka-configs.sh sends, sets the rates themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.config.option import option, options
from odradek.config.values import at_least, int32


@options
class QuotaConfig:
    """The effective settings of quotas."""

    quota_window_num: int32 = option(
        "quota.window.num",
        default=11,
        valid=at_least(1),
        doc="The number of samples over which the rates of produce, fetch, request and connection "
        "quotas are measured.",
    )
    quota_window_size_seconds: int32 = option(
        "quota.window.size.seconds",
        default=1,
        valid=at_least(1),
        doc="The length of a sample of quota.window.num, and the longest time for which a "
        "request quota or a connection rate delays a client each time.",
    )
    controller_quota_window_num: int32 = option(
        "controller.quota.window.num",
        default=11,
        valid=at_least(1),
        doc="The number of samples for which a client may save up its quota of changes to topics, "
        "so that it can make many at once.",
    )
    controller_quota_window_size_seconds: int32 = option(
        "controller.quota.window.size.seconds",
        default=1,
        valid=at_least(1),
        doc="The length of a sample of controller.quota.window.num.",
    )
    odradek_quota_sensors_max: int32 = option(
        "odradek.quota.sensors.max",
        default=10_000,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="The number of users, client ids or addresses whose rates the broker remembers, for "
        "each kind of quota; above that, it forgets the one that has been idle for the longest.",
    )


def quota_problems(_: QuotaConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield nothing: these settings cannot contradict each other."""
    yield from ()
