"""The first batches that are awaited in a log, of transactions that are about to begin there.

Before the first batch of a transaction is accepted, the coordinator is asked whether the
partition is part of that transaction (KIP-890). When the answer refuses the batch for now, the
batches that the producer sent after it must not pass for the first one. Kafka's
VerificationStateEntry.
"""

from __future__ import annotations

from odradek.dataclass import dataclass
from odradek.protocol.batches import BatchHeader
from odradek.storage.errors import OutOfOrderSequence


@dataclass(slots=True)
class FirstBatch:
    """The lowest sequence with which a producer has asked to begin."""

    epoch: int
    sequence: int
    # Whether a producer without batches in the log has to begin with sequence 0.
    is_numbered_from_0: bool
    expected_ms: int
    # Whether a coordinator on another broker has agreed since, and no marker has come.
    is_verified: bool = False


class FirstBatches:
    """The first batches that are awaited in one log, by producer; owned by its producers."""

    __slots__ = ("_awaited",)

    def __init__(self) -> None:
        self._awaited: dict[int, FirstBatch] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def expect(
        self, producer_id: int, epoch: int, sequence: int, *, from_0: bool, now_ms: int
    ) -> None:
        """Note that a producer asks to begin a transaction with a sequence."""
        known = self._awaited.get(producer_id)
        if known is None:
            self._awaited[producer_id] = FirstBatch(epoch, sequence, from_0, now_ms)
        elif epoch > known.epoch:
            known.epoch, known.sequence, known.is_verified = epoch, sequence, False
        elif epoch == known.epoch:
            known.sequence = min(sequence, known.sequence)

    def verify(self, producer_id: int, epoch: int) -> None:
        """Note that the coordinator agrees to a producer's transaction."""
        known = self._awaited.get(producer_id)
        if known is not None and known.epoch == epoch:
            known.is_verified = True

    def is_verified(self, producer_id: int, epoch: int) -> bool:
        """Return whether the coordinator has agreed, and the transaction has not ended since."""
        known = self._awaited.get(producer_id)
        return known is not None and known.epoch == epoch and known.is_verified

    def check(self, batch: BatchHeader) -> None:
        """Check that the first batch of a producer here is not one that was sent after it.

        A producer that has batches here can only go on with the next one; the awaited one may be
        a late repetition of an earlier batch. Raises OutOfOrderSequence.
        """
        known = self._awaited.get(batch.producer_id)
        if known is None:
            return
        first = 0 if known.is_numbered_from_0 else known.sequence
        if batch.base_sequence > first:
            raise OutOfOrderSequence(
                f"producer {batch.producer_id} began with sequence {batch.base_sequence}, "
                f"expected {first}"
            )

    def came(self, producer_id: int) -> None:
        """Note that a producer's transaction has begun."""
        self._awaited.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """Note that a producer's transaction has ended, and that its epoch is this one now.

        A batch of the next transaction, with that epoch, may be awaited already.
        """
        known = self._awaited.get(producer_id)
        if known is not None and not (known.is_numbered_from_0 and known.epoch == epoch):
            del self._awaited[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the batches that have been awaited for too long."""
        self._awaited = {
            producer_id: known
            for producer_id, known in self._awaited.items()
            if now_ms - known.expected_ms < expiration_ms
        }
