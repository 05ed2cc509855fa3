"""The troubles of a siege, by a seed: of brokers, clocks, the catalog, the bucket, the network.

Troubles of two brokers may overlap; those of the catalog and the bucket come one after the other.
"""

from __future__ import annotations

import math
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial

from bench.processes import ROOT
from tests.histories.recording import Recorder
from tests.siege.brokers import LEASE_S, Broker, Stuck
from tests.siege.proxies import ANSWERS, REQUESTS
from tests.siege.shifted import write_offset
from tests.siege.stage import Stage

_REST_MAX_S = 4.0
_SHORT_S, _LONG_S = LEASE_S / 3, LEASE_S * 2
_JUMP_MS = 60_000
_SLOW_S = 0.3
_REFUSED_SHARES = (0.1, 0.5, 1.0)
# No more brokers are in trouble at once.
_TROUBLED_MAX = 2
_OF_SERVERS_SHARE = 0.15
_START_AGAIN_MAX_S = 2.0
_WIPED_SHARE = 0.7
# A worker is killed, stopped, or stands still until its supervisor kills it.
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
_OfBroker = Callable[[Broker, random.Random], None]


class Nemesis:
    """Troubles a cluster until it is over, then ends all troubles."""

    def __init__(self, stage: Stage, seed: int, recorder: Recorder) -> None:
        self._stage, self._chance = stage, random.Random(f"nemesis {seed}")
        self._recorder = recorder
        self._has_failed_over = False
        # When the servers were troubled last.
        self._well_since_s = 0.0
        self._over = threading.Event()
        self._busy: set[int] = set()
        self._turns = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def of_broker(self, broker: Broker) -> dict[_OfBroker, int]:
        """Return the troubles of a broker, and their weights."""
        return {
            self.kill: 5,
            self.stop: 2,
            self.pause: 2,
            self.pause_beyond_lease: 3,
            self.jump: 1,
            self.cut_off: 5,
            self.lose_answers: 5,
            self.reset: 2,
            self.slow_bucket: 1,
            self.refuse_requests: 3,
            self.fill_disk: 3,
            self.lose_worker: 6 if broker.workers > 1 else 0,
        }

    def of_servers(self) -> dict[Callable[[random.Random], None], int]:
        """Return the troubles of the servers, and their weights."""
        return {self.restart_catalog: 2, self.kill_bucket: 2, self.fail_over: 1}

    def run(self, seconds: float) -> None:
        """Trouble the cluster for some seconds.

        The seed draws each trouble and its broker, whatever the former ones take: each waits for
        its turn.
        """
        end_s = time.monotonic() + seconds
        while not self._over.wait(self._chance.random() * _REST_MAX_S):
            chance = random.Random(self._chance.getrandbits(32))
            if time.monotonic() > end_s:
                break
            if chance.random() < _OF_SERVERS_SHARE:
                servers = self.of_servers()
                (trouble,) = chance.choices(list(servers), list(servers.values()))
                self._well_since_s = math.inf
                self._note(trouble.__name__, -1, partial(trouble, chance))
                self._well_since_s = time.monotonic()
            else:
                self._trouble(chance.choice(self._stage.brokers), chance)
        for thread in self._threads:
            thread.join()
        self._stage.heal()
        if self._errors:
            raise self._errors[0]

    def _trouble(self, broker: Broker, chance: random.Random) -> None:
        """Trouble a broker in a thread of its own, once its turn has come."""
        kinds = self.of_broker(broker)
        (trouble,) = chance.choices(list(kinds), list(kinds.values()))
        with self._turns:
            self._turns.wait_for(
                lambda: broker.node_id not in self._busy and len(self._busy) < _TROUBLED_MAX
            )
            self._busy.add(broker.node_id)

        def run() -> None:
            try:
                self._note(
                    trouble.__name__, broker.node_id, lambda: self._begin(trouble, broker, chance)
                )
            finally:
                with self._turns:
                    self._busy.discard(broker.node_id)
                    self._turns.notify()

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def _begin(self, trouble: _OfBroker, broker: Broker, chance: random.Random) -> None:
        """Trouble a broker; before, note one that has ended by itself, and start it again."""
        if not broker.is_up:
            text = f"ended: broker {broker.node_id} by itself: {broker.reason()}"
            self._recorder.begin("problem", "nemesis", text=text)
            self._start_again(broker, chance)
        trouble(broker, chance)

    def _note(self, name: str, node_id: int, trouble: Callable[[], None]) -> None:
        begun = self._recorder.begin("disrupt", "nemesis", name=name, node=node_id)
        where = f", broker {node_id}" if node_id >= 0 else ""
        print(f"{time.strftime('%H:%M:%S')} {name.replace('_', ' ')}{where}", flush=True)
        try:
            trouble()
        except Stuck as error:
            self._recorder.begin("problem", "nemesis", text=f"stuck: {error}")
            self._over.set()
        except BaseException as error:
            self._errors.append(error)
            self._over.set()
        self._recorder.end(begun)

    # --- of brokers ----------------------------------------------------------------------------

    def kill(self, broker: Broker, chance: random.Random) -> None:
        """Kill a broker, often with its disk, and start it again, with the present code."""
        broker.kill()
        keeps_disk = broker.node_id in self._stage.plan.keepers
        if not keeps_disk and chance.random() < _WIPED_SHARE:
            broker.wipe()
        self._start_again(broker, chance)

    def stop(self, broker: Broker, chance: random.Random) -> None:
        """Stop a broker as for an upgrade, and start it again, with the present code."""
        broker.stop()
        self._start_again(broker, chance)

    def _start_again(self, broker: Broker, chance: random.Random) -> None:
        self._over.wait(chance.random() * _START_AGAIN_MAX_S)
        broker.root = ROOT
        broker.start_again(lambda: self._well_since_s)

    def pause(self, broker: Broker, chance: random.Random) -> None:
        """Let a broker stand still, shorter than its lease."""
        self._pause(broker, chance.random() * _SHORT_S)

    def pause_beyond_lease(self, broker: Broker, chance: random.Random) -> None:
        """Let a broker stand still for so long that others lead its partitions."""
        self._pause(broker, LEASE_S + chance.random() * _LONG_S)

    def _pause(self, broker: Broker, seconds: float) -> None:
        broker.pause()
        self._over.wait(seconds)
        broker.resume()

    def jump(self, broker: Broker, chance: random.Random) -> None:
        """Let the wall clock of a broker jump by a minute, and back later."""
        write_offset(broker.clock_file, chance.choice([-_JUMP_MS, _JUMP_MS]))
        self._over.wait(chance.random() * _LONG_S)
        write_offset(broker.clock_file, 0)

    def cut_off(self, broker: Broker, chance: random.Random) -> None:
        """Cut a broker off from the catalog, the bucket, clients or other brokers, or from all."""
        ways = list(broker.all_ways.values())
        some = ways if chance.random() < 0.2 else [chance.choice(ways)]
        for way in some:
            way.cut()
        self._over.wait(chance.random() * (LEASE_S + _LONG_S))
        is_reset = chance.random() < 0.5
        for way in some:
            way.heal(is_reset=is_reset)

    def lose_answers(self, broker: Broker, chance: random.Random) -> None:
        """Let requests arrive and their answers not, or the other way round; then reset."""
        way = chance.choice(list(broker.all_ways.values()))
        way.cut(chance.choice([ANSWERS, ANSWERS, REQUESTS]))
        self._over.wait(chance.random() * LEASE_S)
        way.heal(is_reset=True)

    def reset(self, broker: Broker, chance: random.Random) -> None:
        """Reset the connections of a broker with some other."""
        chance.choice(list(broker.all_ways.values())).reset()

    def slow_bucket(self, broker: Broker, chance: random.Random) -> None:
        """Let the answers of the bucket be late."""
        broker.bucket.slow(_SLOW_S)
        self._over.wait(chance.random() * _LONG_S)
        broker.bucket.heal()

    def refuse_requests(self, broker: Broker, chance: random.Random) -> None:
        """Let the bucket answer a share of the requests with 500 or 503."""
        share, of_requests = chance.choice(_REFUSED_SHARES), chance.getrandbits(32)
        broker.bucket.refuse(share, random.Random(of_requests))
        self._over.wait(chance.random() * _LONG_S)
        broker.bucket.heal()

    def fill_disk(self, broker: Broker, chance: random.Random) -> None:
        """Let the disk of a broker be full, which its /health must say once it was refused.

        A broker that ends by that is started again.
        """
        if broker.disk is None:
            return
        before = broker.disk_failures()
        broker.disk.fill()
        self._over.wait(chance.random() * _LONG_S)
        refusals = broker.disk_failures() - before
        if refusals > 0 and (health := broker.health()) and "log directory" not in health:
            text = f"silent: broker {broker.node_id}, {refusals} refusals of its disk: {health}"
            self._recorder.begin("problem", "nemesis", text=text)
        broker.disk.make_room()
        if not broker.is_up:
            self._start_again(broker, chance)

    def lose_worker(self, broker: Broker, chance: random.Random) -> None:
        """Lose one worker of a machine; its supervisor starts it again."""
        broker.signal_worker(chance.choice(broker.node_ids), chance.choice(_SIGNALS))

    # --- of servers ----------------------------------------------------------------------------

    def restart_catalog(self, chance: random.Random) -> None:
        """Stop the catalog in the middle of what it does, and start it again."""
        catalog = self._stage.servers.catalog
        catalog.stop()
        self._over.wait(chance.random() * _START_AGAIN_MAX_S)
        catalog.start()

    def kill_bucket(self, chance: random.Random) -> None:
        """Kill the server of S3, and start it again."""
        bucket = self._stage.servers.bucket
        bucket.kill()
        self._over.wait(chance.random() * _START_AGAIN_MAX_S)
        bucket.start()

    def fail_over(self, chance: random.Random) -> None:
        """Lose the catalog for good, and let its replica take over; there is one replica."""
        if not self._has_failed_over:
            self._has_failed_over = True
            self._stage.fail_over()
