"""The course of a siege: load, troubles, peace, the last reads, the checks."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.histories.checks.checker import check
from tests.histories.checks.problem import Problem
from tests.histories.history import History
from tests.histories.recording import Recorder, read_recordings
from tests.siege.crew import Crew
from tests.siege.jobs import Cleanings
from tests.siege.load.client import Client
from tests.siege.load.consumers import scan
from tests.siege.nemesis import Nemesis
from tests.siege.stage import Stage
from tests.siege.topics import COPIES, LOADS, TABLE, TOPICS

_END_S = 120.0
# The part of a siege before Spark cleans.
_UNCLEANED_SHARE = 0.3
_NAME = "siege"
_TRANSACTIONAL = ("txn", "copier")


@dataclass
class Report:
    """The result of a siege."""

    history: History
    problems: list[Problem]
    hung: int  # clients that were replaced

    @property
    def troubles(self) -> Counter[str]:
        """How often there was each trouble."""
        return Counter(one.name for one in self.history.disruptions)


class Siege:
    """A cluster under load and in trouble."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage, self._seed = stage, seed
        self._folder = stage.folder / "histories"
        self._folder.mkdir()
        self._recorder = Recorder(self._folder / "siege.jsonl")
        self._client = Client(
            _NAME, stage.bootstrap, [], self._recorder, random.Random(seed), threading.Event()
        )
        words = {name: one.word(name, stage.homes) for name, one in TOPICS.items()}
        self._crew = Crew(self._folder, stage.bootstrap, seed, words, self._note)

    def run(self, seconds: float) -> Report:
        """Besiege the cluster for some seconds; return what was found."""
        self._create_topics()
        nemesis = Nemesis(self._stage, self._seed, self._recorder)
        cleanings = Cleanings(self._stage, self._recorder, self._note, TABLE)
        try:
            self._crew.start(LOADS)
            cleanings.start(seconds * _UNCLEANED_SHARE)
            nemesis.run(seconds)
            self._crew.end()
            cleanings.end()
        finally:
            self._crew.kill()
            cleanings.kill()
        self._end_transactions()
        self._read_all()
        for broker in self._stage.brokers:
            for line in broker.bugs():
                self._note(f"bug: {line}")
        self._recorder.close()
        history = read_recordings(sorted(self._folder.glob("*.jsonl")))
        return Report(history, check(history), self._crew.hung)

    def _create_topics(self) -> None:
        admin = AdminClient(self._client.settings())
        homes = self._stage.homes
        asked = admin.create_topics([one.created(name, homes) for name, one in TOPICS.items()])
        for future in asked.values():
            future.result()
        for name, one in TOPICS.items():
            self._client.begin("topic", topic=name, keeps_reads=True, **one.promises)

    def _end_transactions(self) -> None:
        """End the transactions of clients that hung."""
        for name in self._crew.names:
            if name.startswith(_TRANSACTIONAL):
                settings = self._client.settings(transactional_id=name)
                try:
                    Producer(settings).init_transactions(_END_S)
                except KafkaException as error:
                    self._note(f"stuck: the transaction of {name} does not end: {error}")

    def _note(self, text: str) -> None:
        self._client.begin("problem", text=text)

    def _read_all(self) -> None:
        """Read what there is in the end: all records, and the committed ones."""
        for topic, one in TOPICS.items():
            for number in range(one.partitions):
                for is_committed in (True, False):
                    # A copy whose transaction was aborted is made again, and there twice.
                    is_read = scan(
                        self._client,
                        (topic, number),
                        is_committed=is_committed,
                        is_final=True,
                        leaves_out=is_committed or topic == COPIES,
                        patience_s=_END_S,
                    )
                    if not is_read:
                        self._note(f"stuck: {topic}-{number} cannot be read to its end")
