"""All questions, in the order in which the benchmark puts them."""

from __future__ import annotations

from collections.abc import Mapping

from bench.pairs import Question
from bench.questions.alike import IN_MEMORY, ON_DISK
from bench.questions.cleaning import CLEANING, CLEANING_LATENCY
from bench.questions.consume import CONSUME, CONSUME_TLS
from bench.questions.cost import CPU, RECOVERY, START
from bench.questions.groups import GROUPS
from bench.questions.latency import END_TO_END, MIXED, ROUND_TRIPS
from bench.questions.many import CONNECTIONS, DURABLE, LOOKUPS, PARTITIONS
from bench.questions.one_core import ONE_CORE
from bench.questions.produce import PRODUCE
from bench.questions.workers import WORKERS

QUESTIONS: Mapping[str, Question] = {
    one.name: one
    for one in (
        PRODUCE,
        CONSUME,
        CONSUME_TLS,
        ROUND_TRIPS,
        END_TO_END,
        MIXED,
        CONNECTIONS,
        DURABLE,
        ON_DISK,
        IN_MEMORY,
        PARTITIONS,
        GROUPS,
        LOOKUPS,
        ONE_CORE,
        WORKERS,
        CLEANING,
        CLEANING_LATENCY,
        START,
        RECOVERY,
        CPU,
    )
}
