"""A job that cleans leased partitions in one thread, and finds the latest keys by a dictionary."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from odradek.broker.shared.leased import LeasedLog
from odradek.broker.shared.leased_parts import (
    draw_key,
    latest_in_part,
    plan_rewrites,
    put_together,
    rewrite,
)
from odradek.broker.shared.leased_terms import Proposal
from odradek.storage.objects.store import ObjectStore


def clean_log(store: ObjectStore, log: LeasedLog) -> Proposal:
    """Carry out all parts."""
    key = draw_key()
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    facts = []
    for part in range(len(log.parts)):
        with latest_in_part(store, log, part, key) as (found, some):
            facts.append(found)
            for one in some:
                for *of_key, ordinal in zip(*(column.tolist() for column in one), strict=True):
                    latest[of_key[0], of_key[1]] = (part, ordinal)
    kept = defaultdict(list)
    for part, ordinal in latest.values():
        kept[part].append(ordinal)
    return put_together(
        [
            rewrite(store, log, part, how, np.array(kept[part], np.int64), part)
            for part, how in enumerate(plan_rewrites(store, log, facts))
        ]
    )
