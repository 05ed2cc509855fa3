"""A PostgreSQL of its own: a database cluster in a temporary folder, on a free port."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg

from bench.processes import NotInstalled, free_port, wait_for

# Folders that are there as long as this process.
_FOLDERS = ExitStack()
atexit.register(_FOLDERS.close)

_DEBIANS = Path("/usr/lib/postgresql")
PASSWORD = "a-secret"


def folder_of_programs() -> Path | None:
    """Return the folder that has PostgreSQL's programs, None when they are not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(_DEBIANS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


@dataclass
class Postgresql:
    """A server, which may be stopped, killed and started again."""

    programs: Path
    folder: Path
    port: int
    user: str | None
    # Whether it flushes its files to the disk. For tests it does not: only processes crash there,
    # and a recovery first flushes thousands of files, which took more than a minute beside others.
    is_durable: bool = False
    # The folder of its files, in its own.
    files: str = "data"
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the database that is always there."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://odradek:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create a database; return its address."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url_of(name)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run statements, also while the server is set to read only."""
        options = "-c default_transaction_read_only=off"
        url = self.url_of(database)
        with psycopg.connect(url, autocommit=True, options=options) as connection:
            for one in statements:
                connection.execute(one.encode())

    def copy(self, name: str, *options: str) -> None:
        """Copy the files of the running server, for `fail_over` or a replica."""
        self._run(
            "pg_basebackup", "-D", str(self.folder / name), "-d", self.url, "--checkpoint=fast",
            "--no-sync", *options,
        )  # fmt: skip

    @contextmanager
    def replicated(self) -> Iterator[Postgresql]:
        """Run a replica beside the running server; each commit then waits for it."""
        name = "replica"
        self.copy(name, "--write-recovery-conf")
        replica = Postgresql(
            self.programs, self.folder, free_port(), self.user, self.is_durable, name
        )
        replica.start()
        try:
            self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.execute("SELECT pg_reload_conf()")
            yield replica
        finally:
            replica.stop()

    def promote(self) -> None:
        """Let a replica take the place of the server that it copies."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self.folder / self.files))

    def fail_over(self, name: str) -> None:
        """Go on with a copy of the files at once, as after the loss of the present ones."""
        self.stop()
        self.files = name
        self.start()

    def create(self) -> None:
        """Create the files of the server."""
        self._make_folder()
        original = _first_files(self.programs, self.user)
        subprocess.run(["cp", "-a", original, self.folder / self.files], check=True)

    def init(self) -> Path:
        """Create files that others are copied from, which takes a tenth of the time."""
        self._make_folder()
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if self.user:
            shutil.chown(secret, self.user)
        files = self.folder / self.files
        self._run(
            "initdb", "-D", str(files), "-U", "odradek", "-A", "scram-sha-256",
            f"--pwfile={secret}", "--no-sync", "--encoding=UTF8", "--locale=C",
        )  # fmt: skip
        return files

    def _make_folder(self) -> None:
        self.folder.mkdir()
        if self.user:
            shutil.chown(self.folder, self.user)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        command = self._command(
            "postgres", "-D", str(self.folder / self.files), "-p", str(self.port),
            "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}",
            "-c", f"fsync={'on' if self.is_durable else 'off'}",
        )  # fmt: skip
        with (self.folder / f"{self.files}.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_for(self._answers, "PostgreSQL answers")

    def stop(self) -> None:
        """Stop it at once, without waiting for clients."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        command = self._command("pg_isready", "-h", "127.0.0.1", "-p", str(self.port))
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _run(self, *words: str) -> None:
        subprocess.run(self._command(*words), check=True, capture_output=True, timeout=60)

    def _command(self, program: str, *words: str) -> list[str]:
        command = [str(self.programs / program), *words]
        if not self.user:
            return command
        return ["setpriv", f"--reuid={self.user}", "--clear-groups", *command]


@contextmanager
def running(*, is_durable: bool = False) -> Iterator[Postgresql]:
    """Run a new server. Raises NotInstalled.

    Its folder is not below pytest's: each session of pytest takes that of all others away from
    other users.
    """
    programs = folder_of_programs()
    if programs is None:
        raise NotInstalled("PostgreSQL is not installed (apt-get install postgresql)")
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = "postgres" if _exists("postgres") else "nobody"
    with _entered_by_others() as folder:
        server = Postgresql(programs, folder / "server", free_port(), user, is_durable)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def _entered_by_others() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="postgresql-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # the server's user enters its own folder below
        yield folder


@cache
def _first_files(programs: Path, user: str | None) -> Path:
    """Return the files of a server that was never started, which this process keeps."""
    folder = _FOLDERS.enter_context(_entered_by_others())
    return Postgresql(programs, folder / "server", 0, user).init()


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
