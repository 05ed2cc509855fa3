"""odradek doctor and odradek serve judge the same settings in the same way.

A case that serve refuses has its words in the error of serve and in a problem of doctor; for one
with which serve starts, doctor has no problem. In both, doctor leaves the disk as it was. To add
one is to add a row.
"""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.processes import free_port
from odradek.broker.metadata.images import DATABASE_NAME
from odradek.storage.directory import METADATA_DIRECTORY, LogDirectory
from odradek.storage.real_files import RealFileSystem
from tests.broker.certificates import Authority
from tests.cli.test_one_line_errors import clean_environment, unprivileged
from tests.support.forking import ForkServer, fork_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

Settings = Mapping[str, object]
Arrange = Callable[[Path], Settings]
STARTED = "accepts connections on"


def folder(path: Path, mode: int = 0o700) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def file(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def directory(path: Path, node_id: int = 1) -> Path:
    """Make a log directory of a broker."""
    LogDirectory(RealFileSystem(), path, cluster_id="c", node_id=node_id).close()
    return path


def locked(path: Path, mode: int) -> Settings:
    return {"log.dirs": folder(path / "locked", mode)}


def dangling(path: Path) -> Settings:
    (path / "l").symlink_to(path / "no")
    return {"log.dirs": path / "l"}


def sealed(path: Path) -> Settings:
    data = path / "data"
    file(data / DATABASE_NAME, b"x" * 64)
    file(data / f"{DATABASE_NAME}.copy", b"x" * 64)
    return {}


def newer_catalog(path: Path) -> Settings:
    with closing(sqlite3.connect(path / "catalog.db")) as database:
        database.executescript(
            "CREATE TABLE schema_version (number INTEGER); INSERT INTO schema_version VALUES (999)"
        )
    return {"odradek.catalog.url": f"sqlite://{path / 'catalog.db'}"}


def keystore(path: Path) -> dict[str, object]:
    """Make the store of a listener that speaks TLS."""
    store = Authority("an authority").issue("broker").pem_file(path / "keys.pem")
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
    }


def shared(url: str, path: Path) -> Settings:
    catalog = f"sqlite://{path / 'catalog.db'}"
    return {"odradek.catalog.url": catalog, "odradek.object.store.url": url}


def one_port(host: str) -> Arrange:
    """Listen at a port of 127.0.0.1, and serve HTTP at the same one of a host."""

    def arrange(path: Path) -> Settings:
        port = free_port()
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "metrics.listener": f"{host}:{port}",
        }

    return arrange


WORKERS = {"odradek.workers": 2}
AUDIT = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
         "super.users": "User:ANONYMOUS"}  # fmt: skip

# Name, what it is brought about by, and the words that both have; none where serve starts.
CASES: list[tuple[str, Arrange, tuple[str, ...]]] = [
    ("a new directory", lambda p: {"log.dirs": p / "a/b/c"}, ()),
    ("a relative directory", lambda p: {"log.dirs": "data"}, ()),
    ("a directory of its own", lambda p: {"log.dirs": directory(p / "d")}, ()),
    ("a parent that is a file", lambda p: {"log.dirs": file(p / "f") / "below"},
     ("cannot use", "f/below: Not a directory", "choose another log.dirs")),
    ("a file", lambda p: {"log.dirs": file(p / "f")}, ("cannot use", "f: File exists")),
    ("a link to nowhere", dangling, ("cannot use", "/l: File exists")),
    ("a parent that may not be written", lambda p: {"log.dirs": folder(p / "p", 0o555) / "d"},
     ("cannot use", "p/d: Permission denied", "let user")),
    ("a parent that may not be entered", lambda p: {"log.dirs": folder(p / "p", 0o600) / "d"},
     ("cannot use", "/p/d", "Permission denied")),
    ("a parent that may not be listed", lambda p: {"log.dirs": folder(p / "p", 0o300) / "d"},
     ("cannot use", "/p: Permission denied")),
    ("a read-only file system", lambda p: {"log.dirs": "/sys/odradek"}, ("cannot use", "/sys")),
    ("not to be read", lambda p: locked(p, 0o000), ("cannot use", "locked", "Permission denied")),
    ("not to be written", lambda p: locked(p, 0o555),
     ("cannot use", "locked/.lock: Permission denied")),
    ("a name that is too long", lambda p: {"log.dirs": p / ("x" * 300)}, ("File name too long",)),
    ("a second directory that fails", lambda p: {"log.dirs": f"{p / 'd'},{file(p / 'f')}"}, ()),
    ("a second one of another node",
     lambda p: {"log.dirs": f"{directory(p / 'a')},{directory(p / 'b', 7)}"},
     ("has node.id=7, this broker has 1", "choose another log.dirs")),
    ("the data of another node", lambda p: {"log.dirs": directory(p / "d", 7), "node.id": 8},
     ("has node.id=7, this broker has 8",)),
    ("the data of another cluster",
     lambda p: {"log.dirs": directory(p / "d"), "odradek.cluster.id": "other"},
     ("has cluster.id=c, this broker has other",)),
    ("the data of Kafka", lambda p: {"log.dirs": folder(p / "k" / METADATA_DIRECTORY).parent},
     ("has the data of Apache Kafka: stop Kafka, and run `odradek adopt",)),
    ("damaged metadata", sealed, ("odradek.db is damaged: the checksum does not match",)),
    ("metadata in a catalog that is not named",
     lambda p: {"log.dirs": file(p / f"d/{DATABASE_NAME}.moved-to-catalog").parent},
     ("is in a catalog: set odradek.catalog.url",)),
    ("a node id of the data that is no number",
     lambda p: {"log.dirs": file(p / "d/meta.properties", b"node.id=x\n").parent}, ("node.id",)),
    ("one port for two", one_port("127.0.0.1"),
     ("cannot listen on 127.0.0.1:", "Address already in use")),
    ("one port for two, one of them at all addresses", one_port(""),
     ("cannot listen on", "Address already in use")),
    ("one port of two addresses", one_port("127.0.0.2"), ()),
    ("an address of another machine", lambda p: {"listeners": "PLAINTEXT://192.0.2.1:0"},
     ("cannot listen on 192.0.2.1:0",)),
    ("an unknown host", lambda p: {"listeners": "PLAINTEXT://host.invalid:9092"},
     ("cannot listen on host.invalid:9092",)),
    ("a bad value", lambda p: {"num.partitions": "many"}, ("num.partitions",)),
    ("a contradiction", lambda p: {"node.id": 1, "broker.id": 2}, ("`node.id`",)),
    ("a setting of one worker", lambda p: {"odradek.worker.2.node.id": 9}, ()),
    ("workers", lambda p: WORKERS, ()),
    ("workers of one id", lambda p: {**WORKERS, "odradek.worker.2.node.id": 1},
     ("two workers have one node.id",)),
    ("a bad value of a worker", lambda p: {**WORKERS, "odradek.worker.2.num.partitions": "x"},
     ("num.partitions",)),
    ("a certificate for HTTP that is none",
     lambda p: {"odradek.http.tls.certificate": file(p / "c.pem", b"x")},
     ("odradek.http.tls.certificate=", "are not a certificate and its key in PEM")),
    ("TLS", keystore, ()),
    ("TLS without a key store", lambda p: {"listeners": "SSL://127.0.0.1:0"},
     ("listener SSL: ", "ssl.keystore")),
    ("a key store that is not there",
     lambda p: {**keystore(p), "ssl.keystore.location": p / "no.pem"},
     ("listener SSL: ", "no.pem")),
    ("an audit log", lambda p: {**AUDIT, "odradek.audit.log": p / "audit"}, ()),
    ("an audit log that cannot be written",
     lambda p: {**AUDIT, "odradek.audit.log": p / "no/audit"},
     ("odradek.audit.log: cannot write", "no/audit: No such file or directory")),
    ("an audit log that may not be written",
     lambda p: {**AUDIT, "odradek.audit.log": folder(p / "n", 0o555) / "audit"},
     ("odradek.audit.log: cannot write", "n/audit: Permission denied")),
    ("a catalog", lambda p: {"odradek.catalog.url": f"sqlite://{p / 'catalog.db'}"}, ()),
    ("a catalog in no folder", lambda p: {"odradek.catalog.url": f"sqlite://{p / 'no/c.db'}"},
     ("the catalog ", "no/c.db cannot be used: No such file or directory")),
    ("a catalog that is no database",
     lambda p: {"odradek.catalog.url": f"sqlite://{file(p / 'c.db', b'x' * 4096)}"},
     ("c.db: file is not a database",)),
    ("a catalog of a newer release", newer_catalog, ("has schema version 999",)),
    ("a catalog that does not answer",
     lambda p: {"odradek.catalog.url": f"postgresql://u@127.0.0.1:{free_port()}/d"},
     ("the catalog postgresql://127.0.0.1:", "cannot be used")),
    ("a catalog's address that is none", lambda p: {"odradek.catalog.url": "mysql://u@h/d"},
     ("odradek.catalog.url",)),
    ("a folder for shared topics", lambda p: shared(f"file://{folder(p / 'bucket')}", p), ()),
    ("a store in no folder", lambda p: shared(f"file://{p / 'no'}", p),
     ("cannot use odradek.object.store.url", "cannot be opened")),
    ("a store that may not be written", lambda p: shared(f"file://{folder(p / 'b', 0o555)}", p),
     ("cannot use odradek.object.store.url", "EACCES; check the folder, its permissions")),
    ("a store without a catalog",
     lambda p: {"odradek.object.store.url": f"file://{folder(p / 'bucket')}"},
     ("odradek.object.store.url is set, but shared topics need a catalog",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arrange", "words"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_doctor_judges_as_serve_does(
    tmp_path: Path, arrange: Arrange, words: tuple[str, ...]
) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": f"127.0.0.1:{free_port()}",
        "log.dirs": tmp_path / "data",
        **arrange(tmp_path),
    }
    before = snapshot(tmp_path)
    problems, output = diagnose(tmp_path, settings)
    assert snapshot(tmp_path) == before
    refusal = try_to_serve(tmp_path, settings)
    assert bool(refusal) == bool(words), refusal
    if refusal:
        missing = [word for word in words if word not in refusal]
        assert not missing, refusal
        assert any(all(word in one for word in words) for one in problems), output
    else:
        assert not problems, output


def test_doctor_finds_the_port_and_the_directories_of_another_broker(tmp_path: Path) -> None:
    with socket.socket() as taken, holding(tmp_path / "held") as held:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for settings, words in (
            ({"listeners": f"PLAINTEXT://127.0.0.1:{port}"}, f"cannot listen on 127.0.0.1:{port}"),
            ({"log.dirs": held}, f"{held} is in use by another process (it holds {held}/.lock)"),
        ):
            named = {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "metrics.listener": f"127.0.0.1:{free_port()}",
                "log.dirs": tmp_path / "data",
                **settings,
            }
            problems, output = diagnose(tmp_path, named)
            assert any(words in one for one in problems), output
            assert words in try_to_serve(tmp_path, named)


@contextmanager
def holding(path: Path) -> Iterator[Path]:
    held = LogDirectory(RealFileSystem(), path, cluster_id="c", node_id=1)
    yield path
    held.close()


def snapshot(path: Path) -> dict[str, tuple[int, int]]:
    """Return the mode and the time of change of all files."""
    found = {str(one): one.lstat() for one in (path, *path.rglob("*"))}
    return {name: (one.st_mode, one.st_mtime_ns) for name, one in found.items()}


def diagnose(path: Path, settings: Settings) -> tuple[list[str], str]:
    """Return the problems that doctor finds, with the advice, and all that it has printed."""
    done = server().run(
        [*command("doctor", settings), "--json"], cwd=path, env=clean_environment()
    )
    output = done.stdout + done.stderr
    assert not done.stderr, output
    document: dict[str, Any] = json.loads(done.stdout)
    problems = [
        f"{one['text']}: {one['advice']}"
        for one in document["findings"]
        if one["state"] == "problem"
    ]
    assert document["is_well"] is not bool(problems) and done.returncode == int(bool(problems))
    return problems, output


def try_to_serve(path: Path, settings: Settings) -> str:
    """Return the error of a start, "" for a broker that serves; it is stopped again."""
    log = path.parent / f"{path.name}.log"
    with log.open("w+") as output:
        broker = server().start(
            command("serve", settings), stdout=output, stderr=output, cwd=path,
            env=clean_environment(),
        )  # fmt: skip
        try:
            wait_until(lambda: broker.poll() is not None or STARTED in log.read_text(), "a start")
        finally:
            if broker.poll() is None:
                broker.send_signal(signal.SIGTERM)
            broker.wait(60)
    if STARTED in log.read_text():
        return ""
    return next(
        line for line in log.read_text().splitlines() if line.startswith("odradek: ")
    )


def command(name: str, settings: Settings) -> list[str]:
    return [name, *(f"--set={key}={value}" for key, value in settings.items())]


def server() -> ForkServer:
    """Return what runs commands for which permissions count."""
    return fork_server(tuple(unprivileged()))


