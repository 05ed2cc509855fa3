"""Creates topics again from the directories of their partitions, when there is no metadata.

A data directory of Apache Kafka has no such metadata, and an operator may move damaged metadata
away. A partition's directory has the topic's name and id, and all of them together give the number
of partitions. Settings are lost, but records must not be: a topic comes back without the limits of
age and size that would delete them, until an operator sets its limits again. The broker's own
topics get their usual settings.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.ids import is_reserved
from odradek.broker.metadata.producer_ids import BLOCK_SIZE
from odradek.broker.metadata.store import MetadataStore, TopicRecord
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.plans import PARTITIONS_PER_REQUEST_MAX, internal_topic
from odradek.config.broker import BrokerConfig
from odradek.config.share import ShareConfig
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

_KEPT_FOR_GOOD = {"retention.ms": "-1", "retention.bytes": "-1"}
# A client may invent an id of any size. Ids from here on are ignored: the next id must be larger.
_PRODUCER_ID_MAX = 1 << 62


def find_topics(
    directories: Sequence[LogDirectory], broker: BrokerConfig, shares: ShareConfig, now_ms: int
) -> list[tuple[TopicRecord, Mapping[str, str]]]:
    """Return the topics of the partitions' directories, with settings to begin with."""
    ids: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
    counts: defaultdict[str, int] = defaultdict(int)
    for home in directories:
        for (name, number), topic_id in home.partitions_at_start.items():
            if topic_id is not None and not is_reserved(topic_id):
                ids[name][topic_id] += 1
                counts[name] = max(counts[name], number + 1)
    found: list[tuple[TopicRecord, Mapping[str, str]]] = []
    for name in sorted(ids):
        # A damaged number could mean millions of partitions.
        if topic_names.problem(name) or counts[name] > PARTITIONS_PER_REQUEST_MAX:
            continue
        ((topic_id, _),) = ids[name].most_common(1)  # a damaged id is outvoted
        record = TopicRecord(name, topic_id, counts[name], 1, now_ms)
        found.append((record, _settings(name, broker, shares)))
    if found:
        logger.error(
            "found no metadata: created %d topics again from the directories of their partitions; "
            "settings are lost, and nothing is deleted by age or size until they are set: %s",
            len(found), ", ".join(record.name for record, _ in found),
        )  # fmt: skip
    return found


async def skip_producer_ids(store: MetadataStore, logs: Iterable[Log], next_id: int) -> None:
    """Reserve the producer ids that logs know, so that no other producer gets one of them.

    The store has reserved those below `next_id`. Of a block of which one id is known, others may
    be in use, too.
    """
    known = [state.producer_id for log in logs for state in log.producers]
    taken = max((one for one in known if one < _PRODUCER_ID_MAX), default=-1)
    if taken >= next_id:
        await store.allocate_producer_ids(taken + BLOCK_SIZE - next_id)


def _settings(name: str, broker: BrokerConfig, shares: ShareConfig) -> Mapping[str, str]:
    if name not in topic_names.INTERNAL:
        return _KEPT_FOR_GOOD
    configs = internal_topic(name, broker, shares).configs
    return {key: value for key, value in configs.items() if value is not None}
