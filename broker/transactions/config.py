"""The part of the broker's configuration that governs transactions."""

from __future__ import annotations

from typing import Protocol

from odradek.dataclass import dataclass

HOUR_MS = 60 * 60_000


class BrokerOptions(Protocol):
    """The options of BrokerConfig that this module reads, under Kafka's names."""

    @property
    def transaction_max_timeout_ms(self) -> int: ...
    @property
    def transactional_id_expiration_ms(self) -> int: ...
    @property
    def transaction_abort_timed_out_transaction_cleanup_interval_ms(self) -> int: ...
    @property
    def transaction_remove_expired_transaction_cleanup_interval_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The options of transactions, with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 7 * 24 * HOUR_MS
    abort_interval_ms: int = 10_000
    remove_interval_ms: int = HOUR_MS

    @staticmethod
    def of(options: BrokerOptions) -> TransactionConfig:
        """Take the options of transactions from the broker's."""
        return TransactionConfig(
            max_timeout_ms=options.transaction_max_timeout_ms,
            expiration_ms=options.transactional_id_expiration_ms,
            abort_interval_ms=options.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            remove_interval_ms=options.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
