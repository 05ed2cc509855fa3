"""What a broker is told of quotas: over which time rates are taken.

The rates themselves are set by AlterClientQuotas, which kafka-configs.sh sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from config.option import option, options
from config.values import at_least, int32


@options
class QuotaConfig:
    """The settings of quotas, as they are in force."""

    quota_window_num: int32 = option(
        "quota.window.num",
        default=11,
        valid=at_least(1),
        doc="Over how many samples the rates of produce, fetch and request quotas are taken.",
    )
    quota_window_size_seconds: int32 = option(
        "quota.window.size.seconds",
        default=1,
        valid=at_least(1),
        doc="How long such a sample is; and the longest time for which a request quota or a "
        "connection rate holds a client back at once.",
    )
    controller_quota_window_num: int32 = option(
        "controller.quota.window.num",
        default=11,
        valid=at_least(1),
        doc="For how many samples changes of topics may be saved up, to be made at once.",
    )
    controller_quota_window_size_seconds: int32 = option(
        "controller.quota.window.size.seconds",
        default=1,
        valid=at_least(1),
        doc="How long such a sample is.",
    )
    odradek_quota_sensors_max: int32 = option(
        "odradek.quota.sensors.max",
        default=10_000,
        valid=at_least(1),
        dynamic="cluster-wide",
        doc="Of how many users, client ids or addresses the rate is remembered, of each kind of "
        "quota; past that the one that was silent for the longest begins again.",
    )


def quota_problems(_: QuotaConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what contradicts: nothing can."""
    yield from ()
