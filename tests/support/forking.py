"""Commands as processes that begin where all code is loaded: as forks of a process that has it.

A process of `python -m odradek.cli.main` loads modules for most of its time. A fork of one that
has loaded them is a process of its own all the same: with its output, signals, exit status,
files, threads and memory. Tests that look at the loading itself start a new interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from bench.processes import ROOT, OdradekProcess

MODULE = "odradek.cli.main"
# What brokers and commands load, most of them only when they need it.
LOADED = (
    MODULE, "odradek.broker.main", "odradek.broker.serve", "odradek.broker.catalog.opening",
    "odradek.broker.security.tls", "odradek.broker.workers.host", "odradek.cli.ask",
    "odradek.cli.check_broker", "odradek.cli.check_data", "odradek.cli.check_ports",
    "odradek.cli.check_remote", "odradek.cli.check_start", "odradek.cli.client",
    "odradek.cli.doctor", "odradek.cli.rehearsal_files", "odradek.cli.topics",
    "odradek.storage.objects.opening", "odradek.storage.objects.probe", "encodings.idna",
)  # fmt: skip
# Set for `make test-all`: each broker loads its code by itself.
APART = os.environ.get("ODRADEK_TESTS_APART") == "1"
_SIZE_MAX = 150_000


class ForkedProcess(subprocess.Popen[bytes]):
    """A command that runs, with the methods of a process that Popen has started."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        """Take a process of this server."""
        self._child_created = False  # by Popen, whose end has nothing to do
        self.pid = pid
        self.args = (MODULE,)
        self.returncode: int | None = None
        self._server = server
        self._fd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit status of an ended process, None for one that runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit status, or minus the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(MODULE, timeout or 0)
            os.close(self._fd)
            self.returncode = self._server.status_of(self.pid)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._fd, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A process that has loaded the code, and forks for each command."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        """Start it; `prefix` is the beginning of its command, which drops privileges or so."""
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = str(theirs.fileno())
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.support.forking", number],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        )
        theirs.close()

    def start(
        self,
        arguments: Sequence[str],
        *,
        stdout: IO[Any] | int = subprocess.DEVNULL,
        stderr: IO[Any] | int = subprocess.DEVNULL,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        start_new_session: bool = False,
        limits: Mapping[int, int] | None = None,
    ) -> ForkedProcess:
        """Run a command without standard input; limits are those of the module resource."""
        request = {
            "arguments": [str(one) for one in arguments],
            "environment": dict(os.environ if env is None else env),
            "folder": str(cwd),
            "is_apart": start_new_session,
            "limits": list((limits or {}).items()),
        }
        with Path(os.devnull).open("r+b") as nothing:
            files = [nothing.fileno()]
            for one in (stdout, stderr):
                if one == subprocess.DEVNULL:
                    one = nothing
                files.append(one if isinstance(one, int) else one.fileno())
            message = json.dumps(request).encode()
            assert len(message) <= _SIZE_MAX
            with self._lock:
                socket.send_fds(self._socket, [message], files)
                pid = int(self._socket.recv(100))
        return ForkedProcess(self, pid)

    def popen(self, command: Sequence[str], **options: Any) -> ForkedProcess:
        """Run `python -m odradek.cli.main …`, as subprocess.Popen would."""
        assert tuple(command[:3]) == (sys.executable, "-m", MODULE)
        return self.start(command[3:], **options)

    def run(
        self, arguments: Sequence[str], *, timeout: float = 120, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; return its status, output and errors."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = self.start(arguments, stdout=output, stderr=errors, **options)
            try:
                status = process.wait(timeout)
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            errors.seek(0)
            command = [MODULE, *arguments]
            return subprocess.CompletedProcess(command, status, output.read(), errors.read())

    def status_of(self, pid: int) -> int:
        """Return the exit status of a process that has ended."""
        with self._lock:
            self._socket.send(str(pid).encode())
            return int(self._socket.recv(100))

    def close(self) -> None:
        """End it; it takes no commands any more."""
        self._socket.close()
        self._process.wait()


class ForkedOdradek(OdradekProcess):
    """`odradek serve` as a fork, where it is the code of this folder and nothing around it."""

    def launch(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Begin the process."""
        if APART or (self.module, self.root) != (MODULE, ROOT):
            return super().launch(command, **options)
        return fork_server().popen(command, **options)


@cache
def fork_server(prefix: tuple[str, ...] = ()) -> ForkServer:
    """Return the server of this process for a prefix; it ends with this process."""
    server = ForkServer(prefix)
    atexit.register(server.close)
    return server


def _serve(requests: socket.socket) -> None:
    """Fork for each request, and return the status of processes that have ended."""
    import importlib

    for name in LOADED:
        importlib.import_module(name)
    _begin_numba()
    _trim()
    while True:
        message, files, _, _ = socket.recv_fds(requests, _SIZE_MAX, 3)
        if not message:
            return
        if not files:
            _, status = os.waitpid(int(message), 0)
            requests.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if not pid:
            requests.close()
            _become(files, **json.loads(message))
        for one in files:
            os.close(one)
        requests.send(str(pid).encode())


def _begin_numba() -> None:
    """Have Numba ready: no kernel is loaded, but loading one takes a quarter of the time."""
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()
    cpu_target.typing_context.refresh()


def _trim() -> None:
    """Give free memory back: it would hide what a fork takes."""
    import ctypes
    import gc

    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # of another C library
        ctypes.CDLL(None).malloc_trim(0)


def _become(
    files: Sequence[int],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    is_apart: bool,
    limits: Sequence[tuple[int, int]],
) -> NoReturn:
    """Run a command in this process, and end it."""
    for number, one in enumerate(files):
        os.dup2(one, number)
        os.close(one)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if is_apart:
        os.setsid()
    for kind, most in limits:
        resource.setrlimit(kind, (most, most))
    sys.argv = [MODULE, *arguments]
    from odradek.cli.main import main

    status: Any = 1
    try:
        main(arguments, prog_name=f"python -m {MODULE}")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    # As the interpreter ends, but for the memory, which it would take a while to free.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)
