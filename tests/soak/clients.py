"""A client of a soak as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.processes import ROOT

_END_S = 120.0


class ClientFailed(Exception):
    """A client could not go on; its standard error says why."""


@dataclass
class Client:
    """A process that writes or reads until it is to end."""

    process: subprocess.Popen[str]

    def end(self) -> int:
        """Let it end; return the number of its records. Raises ClientFailed."""
        arguments = " ".join(map(str, self.process.args[3:]))  # type: ignore[index]
        try:
            output, _ = self.process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            raise ClientFailed(f"a client does not end: {arguments}") from None
        if self.process.returncode:
            raise ClientFailed(f"a client has failed: {arguments}")
        return int(output)

    @classmethod
    @contextmanager
    def running(cls, bootstrap: str, kind: str, *rate: str) -> Iterator[Client]:
        """Run a client; see tests.soak.load. It is killed in the end if nobody has ended it."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.load", kind, bootstrap, *rate],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            yield cls(process)
        finally:
            process.kill()
            process.wait()
