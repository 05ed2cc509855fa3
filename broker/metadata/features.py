"""The features of the cluster: the levels that are supported, and those in force (KIP-584).

A level is announced as supported only when the broker has the code for it, since clients act on
finalized levels: a Java producer that sees transaction.version 2 adds partitions to its
transactions by producing to them (KIP-890). So kraft.version is supported at level 0 only:
level 1 would promise voters that can be added and removed. The other features do not change the
behaviour of clients: metadata.version names the records of Kafka's metadata log, and with one
replica a partition's list of eligible leaders (KIP-966) has at most this one. librdkafka reads
none of them.

Checks, their order and their words are those of Kafka's FeatureControlManager. The dependencies of
one feature on another always hold, since metadata.version can have only one level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from odradek.broker.errors import Refusal
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.store import MetadataStore
from odradek.broker.orders.java import hash_order
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

ELR = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
# Level 1 enables streams groups (KIP-1071).
STREAMS_VERSION = "streams.version"
# Level 1 enables consumer groups (KIP-848).
GROUP_VERSION = "group.version"
TRANSACTION = "transaction.version"
METADATA_VERSION = "metadata.version"


class UpgradeType(IntEnum):
    """The kinds of change of a level that a client may ask for; any other number is unknown."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, its supported levels, and the one in force unless clients set another."""

    name: str
    first: int
    last: int
    default: int


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A level that a client wants finalized."""

    name: str
    level: int
    upgrade_type: int


FEATURES = (
    Feature(ELR, 0, 1, 1),
    Feature(GROUP_VERSION, 0, 1, 1),
    Feature("kraft.version", 0, 0, 0),
    Feature(METADATA_VERSION, 7, 30, 30),  # 3.3-IV3 to 4.3-IV0
    Feature(SHARE_VERSION, 0, 1, 1),
    Feature(STREAMS_VERSION, 0, 1, 1),
    Feature(TRANSACTION, 0, 2, 2),
)
_FEATURE = {one.name: one for one in FEATURES}


class Features:
    """The levels in force; the event loop owns them."""

    def __init__(
        self, stored: Mapping[str, int], store: MetadataStore, changes: Changes, node_id: int
    ) -> None:
        """Use the levels that clients have set, as far as they are still supported."""
        self._levels = {
            one.name: min(max(stored.get(one.name, one.default), one.first), one.last)
            for one in FEATURES
        }
        self._store, self._changes, self._node_id = store, changes, node_id
        # Called once other levels are in force.
        self.on_changed: list[Callable[[], None]] = []

    @property
    def finalized(self) -> Mapping[str, int]:
        """The levels in force, of the features that are not at 0."""
        return {name: level for name, level in self._levels.items() if level}

    @property
    def epoch(self) -> int:
        """A number that grows whenever levels change."""
        return self._store.revision

    async def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Finalize levels, all of them or none; raises Refusal or MetadataError."""
        await self._changes.run(lambda: self._update(updates, validate_only))

    async def _update(self, updates: Sequence[FeatureUpdate], validate_only: bool) -> None:
        # Of two updates of one feature the later counts.
        wanted = {one.name: one for one in paced(updates)}
        for name in paced(hash_order(wanted, pace=paced)):
            problem = self._problem(wanted[name])
            if problem:
                raise Refusal(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    "The update failed for all features since the following feature had an error: "
                    + problem,
                )
        levels = {name: one.level for name, one in wanted.items()}
        if not validate_only and any(self._levels[name] != levels[name] for name in levels):
            await self._store.finalize_features(levels)
            self.follow(levels)

    def follow(self, levels: Mapping[str, int]) -> None:
        """Put stored levels in force."""
        self._levels |= {one.name: levels[one.name] for one in FEATURES if one.name in levels}
        for changed in self.on_changed:
            changed()

    def _problem(self, update: FeatureUpdate) -> str:
        """Return the reason to refuse an update, "" when there is none."""
        head = f"Invalid update version {update.level} for feature {update.name}."
        if update.upgrade_type not in set(UpgradeType):
            return f"{head} The controller does not support the given upgrade type."
        if update.level < 0:
            return f"{head} A feature version cannot be less than 0."
        feature = _FEATURE.get(update.name, Feature(update.name, 0, 0, 0))
        if not feature.first <= update.level <= feature.last:
            reason = f"only supports versions {feature.first}-{feature.last}"
            if not feature.last:
                reason = "does not support this feature."
            return f"{head} Local controller {self._node_id} {reason}"
        if update.name not in _FEATURE:
            return f"{head} Feature {update.name} not found."
        present = self._levels[update.name]
        if update.level < present and update.upgrade_type == UpgradeType.UPGRADE:
            return (
                f"{head} Can't downgrade the version of this feature without setting the "
                "upgrade type to either safe or unsafe downgrade."
            )
        if update.level > present and update.upgrade_type != UpgradeType.UPGRADE:
            return f"{head} Can't downgrade to a newer version."
        if update.name == METADATA_VERSION and update.level < present:
            return _no_older_metadata(present, update)
        return ""


def _no_older_metadata(present: int, update: FeatureUpdate) -> str:
    # A downgrade from any level, the present one included, would lose metadata in Kafka.
    head = f"Unsupported {METADATA_VERSION} downgrade from {present} to {update.level}."
    if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        return f"{head} Unsafe metadata downgrade is not supported in this version."
    return (
        f"{head} Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )
