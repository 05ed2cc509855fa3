"""The clients of a siege as processes, each with a file of the history."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import QUICK_START, ROOT, java, kafka_libs
from tests.siege.load.client import HUNG

_END_S = 120.0
_LOOK_S = 0.5
_LOG_CHARS = 2_000
_JAVA_CLIENT = Path(__file__).parent / "load" / "SiegeClient.java"
_JAVA_FLAGS = ("-Xmx128m", "-Droot.level=ERROR")
_JAVA = "java-"
_GO_CLIENTS = ROOT / "tests" / "interop" / "go"
_GO = "go-"


@dataclass(frozen=True, slots=True)
class Load:
    """A client: its kind, its name, and its topics."""

    kind: str
    name: str
    topics: Sequence[str]


class Crew:
    """Clients, each of which is replaced when it hangs.

    A replacement has a name of its own, and the numbers of its records begin again.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        seed: int,
        words: Mapping[str, str],
        note: Callable[[str], None],
    ) -> None:
        """Files go to `folder`; `words` has topics as arguments; problems are noted."""
        self._folder, self._bootstrap, self._seed = folder, bootstrap, seed
        self._words, self._note = words, note
        self._clients: dict[str, tuple[Load, subprocess.Popen[bytes]]] = {}
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self.hung = 0

    def start(self, loads: Sequence[Load]) -> None:
        """Start clients, but for those of Java and Go where these are not installed."""
        missing = tuple(self._missing())
        for load in loads:
            if not load.kind.startswith(missing):
                self._start(load, load.name)
        self._watching.start()

    def end(self) -> None:
        """Wait until each client has ended what it does; note those that could not."""
        self._over.set()
        self._watching.join()
        for _, client in self._clients.values():
            assert client.stdin is not None
            client.stdin.close()
        end_s = time.monotonic() + _END_S
        for name, (_, client) in self._clients.items():
            try:
                client.wait(max(end_s - time.monotonic(), 1.0))
            except subprocess.TimeoutExpired:
                client.send_signal(signal.SIGABRT)
                client.wait()
                self._note(f"stuck: {name} did not come to its end: {self._log_of(name)}")
            else:
                self._judge(name, client)

    def kill(self) -> None:
        """Kill all clients."""
        self._over.set()
        for _, client in self._clients.values():
            client.kill()

    @property
    def names(self) -> Sequence[str]:
        """The names of all clients that there have been."""
        return [path.stem for path in self._folder.glob("*.log")]

    def _missing(self) -> Iterator[str]:
        """Build the client in Go; iterate over the beginnings of the kinds that cannot run."""
        if kafka_libs() is None:
            yield _JAVA
        try:
            command = ["go", "build", "-o", str(self._go_client), "./siege"]
            subprocess.run(command, cwd=_GO_CLIENTS, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):  # no Go, or no module proxy
            yield _GO

    @property
    def _go_client(self) -> Path:
        return self._folder / "go-client"

    def _start(self, load: Load, name: str) -> None:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.siege.load"]
        if load.kind.startswith(_JAVA):
            command = [*java([*_JAVA_FLAGS, *QUICK_START]), str(_JAVA_CLIENT)]
        if load.kind.startswith(_GO):
            command = [str(self._go_client)]
        history = self._folder / f"{name}.jsonl"
        command += [load.kind, name, self._bootstrap, str(history), str(self._seed)]
        command += [self._words[topic] for topic in load.topics]
        with self._log(name).open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output
            )
        self._clients[name] = load, process

    def _watch(self) -> None:
        """Replace clients that have ended."""
        while not self._over.wait(_LOOK_S):
            for name, (load, client) in list(self._clients.items()):
                if client.poll() is not None:
                    self._judge(name, client)
                    del self._clients[name]
                    self._start(load, f"{load.name}.{len(self.names)}")

    def _judge(self, name: str, client: subprocess.Popen[bytes]) -> None:
        """Note a client that has failed; one that hung is counted."""
        if client.returncode:
            log = self._log_of(name)
            if HUNG in log:
                self.hung += 1
            else:
                self._note(f"client: {name} ended with {client.returncode}: {log}")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _log_of(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")[-_LOG_CHARS:]
