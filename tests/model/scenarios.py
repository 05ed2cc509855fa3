"""The worlds that are explored, each small and with troubles of its own, and those of mistakes."""

from __future__ import annotations

from tests.model.states import Bounds

HOLD = {
    "takeover": Bounds(in_flight=1, expiries=1, lost=1, late=1, bodies="object"),
    "takeover with records in flight": Bounds(expiries=1, lost=1, bodies="object"),
    "crash": Bounds(in_flight=1, crashes=1, lost=1, stores=1),
    "handover": Bounds(in_flight=1, handovers=1, lost=1, stores=1, bodies="object"),
    "entries of two partitions": Bounds(
        partitions=2, records=1, handovers=1, stores=1, bodies="object"
    ),
    "cleaning beside a takeover": Bounds(in_flight=1, expiries=1, stores=1, cleanings=1),
    "cleaning beside a handover": Bounds(
        in_flight=1, handovers=1, lost=1, stores=1, cleanings=1
    ),
    "cleaning of several segments": Bounds(
        in_flight=1, stored=2, records=3, stores=1, cleanings=2, lost=1
    ),
    "back to the first leader": Bounds(handovers=2, stores=2, cleanings=1, has_garbage=False),
    "a job that cleans": Bounds(stores=2, cleanings=1, lost=1, has_jobs=True),
    "orphans": Bounds(records=1, expiries=1, late=1, stores=1, bodies="object", has_orphans=True),
    "slow uploads": Bounds(in_flight=1, expiries=1, lost=1, slow=1, bodies="object"),
    "orphans of slow uploads": Bounds(
        records=1, expiries=1, slow=1, stores=1, bodies="object", has_orphans=True
    ),
    "three brokers": Bounds(brokers=3, records=1, expiries=2, lost=1),
    # The same with more records in flight, or bodies in either place.
    "large takeover": Bounds(expiries=1, lost=1, bodies="both"),
    "large handover": Bounds(handovers=1, lost=1, stores=1, bodies="object"),
    "large cleaning beside a takeover": Bounds(expiries=1, stores=1, cleanings=1),
    "large cleaning beside a handover": Bounds(handovers=1, lost=1, stores=1, cleanings=1),
}
"""All promises hold in these worlds. Together they have each action."""

BREAK = {
    "acks_after_commit": Bounds(records=1, crashes=1),
    "commits_in_session": Bounds(expiries=1),
    "commits_by_sequence": Bounds(records=1, lost=1),
    "commits_in_order": Bounds(bodies="both"),
    "uploads_before_commit": Bounds(records=1, bodies="object"),
    "discards_the_inline": Bounds(records=1, bodies="object"),
    "watermark_is_committed": Bounds(records=1),
    "epoch_rises_with_end": Bounds(crashes=1),
    "epoch_rises_with_handover": Bounds(handovers=1),
    "producers_come_back": Bounds(records=1, crashes=1),
    "snapshots_are_at_end": Bounds(records=1, crashes=1, stores=1),
    "opens_after_changes": Bounds(records=1, handovers=1, stores=1, lost=1),
    "serves_within_lease": Bounds(records=1, expiries=1),
    "closes_before_handover": Bounds(handovers=1),
    "waits_for_outcome": Bounds(handovers=1, lost=1),
    "stores_what_is_committed": Bounds(records=1, stores=1),
    "stores_as_leader": Bounds(records=1, stores=1, handovers=1),
    "uploads_before_naming": Bounds(records=1, stores=1),
    "exchanges_current_rows": Bounds(
        in_flight=1, stored=2, records=3, stores=1, cleanings=2, handovers=2, has_garbage=False
    ),
    "exchange_can_be_repeated": Bounds(stores=1, cleanings=1, lost=1),
    "frees_what_is_stored": Bounds(records=1),
    "frees_for_all": Bounds(brokers=1, partitions=2, records=1, stores=1),
    "deletes_the_unnamed": Bounds(records=1, stores=1, handovers=1, lost=1),
    "deletes_after_delay": Bounds(stores=1, cleanings=1, lost=1),
    "collects_of_closed_sessions": Bounds(records=1, bodies="object", has_orphans=True),
    "catalog_keeps_commits": Bounds(records=1, rollbacks=1),
    "clocks_run_alike": Bounds(records=1, expiries=1),
    "stores_in_epoch": Bounds(handovers=2, stores=2, cleanings=1, has_garbage=False),
    "answer_can_be_repeated": Bounds(stores=1, cleanings=1, lost=1, has_jobs=True),
}
"""In these worlds a promise breaks without a guard or an assumption."""

BREAK_TOO = [
    (
        "stores_in_epoch",
        Bounds(in_flight=1, handovers=2, stores=3, has_garbage=False),
        "rows: others follow an open one",
    ),
]
"""Other ends of a mistake, by the problem that is found."""
