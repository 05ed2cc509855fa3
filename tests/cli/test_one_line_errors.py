"""Errors of real processes are reported in one line that says what happened and what to do.

A case of REFUSED ends a command: a line on standard error, nothing on standard output. A case of
LOGGED lets the broker run on: a line in its log. To add one is to add a row.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.processes import ROOT, OdradekProcess
from odradek.storage.directory import METADATA_DIRECTORY
from tests.support.forking import ForkedOdradek, fork_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:1"


@dataclass(frozen=True)
class Scene:
    """What a case may use: a folder of its own, and a broker that runs."""

    folder: Path
    broker: OdradekProcess

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def locked(self, mode: int) -> Path:
        """Make a directory with these permissions."""
        path = self.folder / "locked"
        path.mkdir()
        path.chmod(mode)
        return path


Arguments = Callable[[Scene], Sequence[object]]


def serve(*pairs: str, config: str | None = None) -> Arguments:
    """Serve on free ports with settings and a file; {…} is filled from the scene."""

    def arguments(scene: Scene) -> Sequence[object]:
        own = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "metrics.listener": "127.0.0.1:0",
            "log.dirs": str(scene.folder / "data"),
        }
        own |= dict(pair.format(scene=scene).split("=", 1) for pair in pairs)
        given = [f"--set={key}={value}" for key, value in own.items()]
        if config is not None:
            given.append(f"--config={scene.write('server.properties', config)}")
        return ["serve", *given]

    return arguments


def command(*words: str) -> Arguments:
    """Run a command; {…} is filled from the scene."""
    return lambda scene: [word.format(scene=scene) for word in words]


def kafkas_data(scene: Scene) -> Sequence[object]:
    (scene.folder / "data" / METADATA_DIRECTORY).mkdir(parents=True)
    return serve()(scene)


def data_in_a_file(scene: Scene) -> Sequence[object]:
    scene.write("data", "")
    return serve()(scene)


def data_in(mode: int) -> Arguments:
    return lambda scene: serve(f"log.dirs={scene.locked(mode)}")(scene)


def config_in(mode: int) -> Arguments:
    def arguments(scene: Scene) -> Sequence[object]:
        scene.write("server.properties", "").chmod(mode)
        return ["serve", f"--config={scene.folder / 'server.properties'}"]

    return arguments


# Name, how it is brought about, what has to be in the line: what happened, and what to do.
REFUSED: list[tuple[str, Arguments, tuple[str, ...]]] = [
    (
        "busy port",
        serve("listeners=PLAINTEXT://127.0.0.1:{scene.broker.port}"),
        ("cannot listen on 127.0.0.1:", "Address already in use", "choose other listeners"),
    ),
    (
        "busy port of metrics",
        serve("metrics.listener=127.0.0.1:{scene.broker.http_port}"),
        ("cannot listen on 127.0.0.1:", "Address already in use", "metrics.listener"),
    ),
    (
        "unknown host",
        serve("listeners=PLAINTEXT://host.invalid:9092"),
        ("cannot listen on host.invalid:9092", "choose other listeners"),
    ),
    (
        "data of another broker that runs",
        serve("log.dirs={scene.broker.data}"),
        ("is in use by another process", "choose another log.dirs"),
    ),
    ("data in a file", data_in_a_file, ("cannot use ", "data: ", "choose another log.dirs")),
    (
        "data that cannot be read",
        data_in(0o000),
        ("cannot use ", "locked", "Permission denied", "let user ", "another log.dirs"),
    ),
    (
        "data that cannot be written",
        data_in(0o555),
        ("cannot use ", "locked", "Permission denied", "let user ", "another log.dirs"),
    ),
    (
        "data of Kafka that was not adopted",
        kafkas_data,
        ("has the data of Apache Kafka", "stop Kafka, and run `odradek adopt "),
    ),
    (
        "bad value",
        serve("num.partitions=many"),
        ("many for configuration num.partitions", "--set"),
    ),
    (
        "value out of bounds",
        serve(config="num.io.threads=0\n"),
        ("num.io.threads", "at least 1", "server.properties line 1"),
    ),
    (
        "values that contradict each other",
        serve("node.id=1", "broker.id=2"),
        ("`node.id`", "`broker.id`", "--set"),
    ),
    ("pair that is none", command("serve", "--set", "num.partitions"), ("write it as key=value",)),
    (
        "config file that is not there",
        command("serve", "--config", "{scene.folder}/none"),
        ("--config", "none' does not exist", "serve --help"),
    ),
    (
        "config file that is a directory",
        command("serve", "--config", "{scene.folder}"),
        ("--config", "is a directory", "serve --help"),
    ),
    (
        "config file that cannot be read",
        config_in(0o000),
        ("server.properties", "not readable", "serve --help"),
    ),
    (
        "config file with a broken line",
        serve(config="# fine\nnode.id=\\u12\n"),
        ("server.properties line 2", "Malformed"),
    ),
    ("wrong option", command("serve", "--confg", "x"), ("--confg", "serve --help")),
    ("wrong command", command("sevre"), ("No such command 'sevre'", "--help")),
    ("wrong command of a group", command("cleaner", "rnu"), ("'rnu'", "cleaner --help")),
    ("missing argument", command("get", "orders"), ("'KEY'", "get --help")),
    ("wrong number", command("cleaner", "why", "a", "x"), ("'PARTITION'", "why --help")),
    *(
        (f"wrong address of {words[0]} {words[1]}", command(*words, "--url", NOWHERE),
         ("no broker answers at http://127.0.0.1:1", "Connection refused", "--url"))
        for words in (("get", "orders", "k"), ("cleaner", "plan"), ("cleaner", "run", "orders"),
                      ("cleaner", "why", "a", "0"), ("cleaner", "history", "a", "0"),
                      ("cleaner", "verify", "a"))
    ),
    (
        "Kafka's port for an address",
        command("get", "orders", "k", "--url", "http://{scene.broker.bootstrap}"),
        ("no broker answers", "name its metrics.listener"),
    ),
    *(
        (f"wrong topic of {words[0]} {words[1]}",
         command(*words, "--url", "{scene.broker.http}"), ("there is no topic nowhere",))
        for words in (("get", "nowhere", "k"), ("cleaner", "plan", "nowhere"),
                      ("cleaner", "run", "nowhere"), ("cleaner", "why", "nowhere", "0"),
                      ("cleaner", "history", "nowhere", "0"), ("cleaner", "verify", "nowhere"))
    ),
    *(
        (f"wrong address of {' '.join(words)}", command(*words, "-b", "127.0.0.1:1"),
         ("no broker answers at 127.0.0.1:1", "Connection refused", "--bootstrap-servers"))
        for words in (("topics", "list"), ("consume", "orders"), ("groups", "list"),
                      ("configs", "describe", "--topic", "orders"))
    ),
    *(
        (f"wrong topic of {' '.join(words)}",
         command(*words, "nowhere", "-b", "{scene.broker.bootstrap}"), ("nowhere",))
        for words in (("topics", "describe"), ("topics", "delete", "--yes"), ("consume",),
                      ("configs", "describe", "--topic"), ("groups", "describe"))
    ),
    (
        "adopting nothing",
        command("adopt", "{scene.folder}"),
        ("is not a log directory of Kafka", "log.dirs in Kafka's server.properties"),
    ),
    (
        "adopting what is not there",
        command("adopt", "{scene.folder}/none"),
        ("none' does not exist", "adopt --help"),
    ),
    (
        "adopting what another broker serves",
        command("adopt", "{scene.broker.data}"),
        ("is in use by another process",),
    ),
    (
        "wrong quota",
        command("quotas", "set", "--user", "ann", "producer_byte=1"),
        ("there is no quota producer_byte: did you mean", "quotas set --help"),
    ),
    (
        "no broker for the command line's own client",
        command("transactions", "list", "-b", "127.0.0.1:1"),
        ("no broker answers at 127.0.0.1:1 (Connection refused)", "--bootstrap-servers"),
    ),
    (
        "transaction that is not there",
        command("transactions", "describe", "nobody", "-b", "{scene.broker.bootstrap}"),
        ("could not describe transactional id nobody", "TRANSACTIONAL_ID_NOT_FOUND"),
    ),
    ("wrong job", command("pipeline", "nope"), ("'nope'", "pipeline --help")),
    (
        "job without an option",
        command("pipeline", "plan"),
        ("Missing option '--path'", "pipeline plan --help"),
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """A broker for all tests, once it answers over HTTP, which comes after Kafka's listeners."""
    broker = ForkedOdradek(tmp_path_factory.mktemp("broker"))
    broker.start()
    wait_until(lambda: accepts(broker.http_port), "HTTP is served")
    yield broker
    broker.stop()


@pytest.mark.parametrize(
    ("arguments", "words"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED]
)
def test_a_command_that_is_refused(
    tmp_path: Path, answering: OdradekProcess, arguments: Arguments, words: tuple[str, ...]
) -> None:
    done = fork_server(tuple(unprivileged())).run(
        [str(one) for one in arguments(Scene(tmp_path, answering))], env=clean_environment()
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert re.fullmatch(r"(odradek|Error): [^\n]+\n", done.stderr), done.stderr
    for word in words:
        assert word in done.stderr


def one_of_two_directories(broker: OdradekProcess) -> None:
    broker.directory.mkdir()
    locked = broker.directory / "locked"
    locked.write_text("")
    broker.settings = {"log.dirs": f"{broker.data},{locked}"}


def unknown_setting(broker: OdradekProcess) -> None:
    broker.settings = {"num.partition": "3"}


def setting_of_the_past(broker: OdradekProcess) -> None:
    broker.settings = {"zookeeper.connect": "localhost:2181"}


def setting_without_effect(broker: OdradekProcess) -> None:
    broker.settings = {"principal.builder.class": "org.example.Builder"}


def torn_tail(broker: OdradekProcess) -> None:
    damage(fill(broker, broker.kill), -10)


def damaged_segment(broker: OdradekProcess) -> None:
    compacted = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.roll.ms": "50",
    }
    broker.settings = {**compacted, "log.cleaner.threads": "0"}
    damage(fill(broker, broker.stop), 65)
    broker.settings = compacted


# Name, how it is brought about, the level, what has to be in the line.
LOGGED: list[tuple[str, Callable[[OdradekProcess], None], str, tuple[str, ...]]] = [
    (
        "unknown setting",
        unknown_setting,
        "WARNING",
        ("num.partition (--set) is ignored", "did you mean num.partitions?"),
    ),
    (
        "setting of the past",
        setting_of_the_past,
        "WARNING",
        ("zookeeper.connect (--set) is ignored", "no such option any more"),
    ),
    (
        "setting without effect",
        setting_without_effect,
        "WARNING",
        ("principal.builder.class (--set) has no effect",),
    ),
    (
        "one of two data directories refuses",
        one_of_two_directories,
        "ERROR",
        ("log directory is offline", "locked: "),
    ),
    ("torn tail", torn_tail, "WARNING", ("cut a tail", "00000.log position=", "bytes=")),
    (
        "damaged segment",
        damaged_segment,
        "ERROR",
        ("failed to clean", "00000.log position=0 offset=0", "retry_in_ms=", "CRC"),
    ),
]


@pytest.mark.parametrize(
    ("bring_about", "level", "words"), [pytest.param(*case[1:], id=case[0]) for case in LOGGED]
)
def test_trouble_that_a_broker_lives_with(
    tmp_path: Path,
    bring_about: Callable[[OdradekProcess], None],
    level: str,
    words: tuple[str, ...],
) -> None:
    broker = ForkedOdradek(tmp_path / "broker")
    bring_about(broker)
    known = len(broker.log_text()) if broker.log_file.exists() else 0
    broker.start()
    try:
        wait_until(
            lambda: all(word in broker.log_text()[known:] for word in words), "it is logged"
        )
    finally:
        broker.stop()
    lines = broker.log_text()[known:].splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d |odradek |web page on ", line) for line in lines), lines
    loud = [line for line in lines if f" {level} " in line]
    assert len([line for line in loud if all(word in line for word in words)]) == 1, loud


def fill(broker: OdradekProcess, end: Callable[[], None]) -> Path:
    """Write batches of one record, end the broker, and return the file that has the first one.

    With log.roll.ms they are in several segments, however quickly they are written.
    """
    from confluent_kafka import Producer

    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    now_ms = int(time.time() * 1_000)
    for number in range(20):
        producer.produce("orders", b"v%d" % number, key=b"k", timestamp=now_ms + 100 * number)
        producer.flush()
    end()
    return broker.data / "orders-0" / f"{0:020}.log"


def damage(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 0xFF
    file.write_bytes(data)


def unprivileged() -> list[str]:
    """Return the beginning of a command for which permissions count, be it root's."""
    if os.geteuid() != 0:
        return []
    if not shutil.which("setpriv"):
        pytest.skip("permissions do not count for root, and there is no setpriv")
    dropped = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]


def clean_environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "ODRADEK_"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
