"""`odradek pipeline clean` of the compacted topic, beside its brokers and in their troubles."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable

from bench.processes import ROOT
from tests.histories.recording import Recorder
from tests.siege.stage import Stage

_PATIENCE_S = 300.0
_LOG_CHARS = 2_000


class Cleanings:
    """Runs of the job, as a scheduler makes them: another one after each that has failed.

    Trouble may fail each; in peace one succeeds.
    """

    def __init__(
        self, stage: Stage, recorder: Recorder, note: Callable[[str], None], topic: str
    ) -> None:
        """Problems are noted."""
        self._recorder, self._note = recorder, note
        self._log = stage.folder / "clean.log"
        servers = stage.servers
        own = servers.bucket.settings(servers.bucket_url, servers.bucket.port)
        self._command = [sys.executable, "-m", "odradek.cli.main", "pipeline", "clean"]
        self._command += ["--catalog", servers.jobs_url, "--topic", topic]
        for name, value in own.items():
            self._command += ["--set", f"{name}={value}"]
        self._over = threading.Event()
        self._is_done = False
        self._thread: threading.Thread | None = None
        self._job: subprocess.Popen[bytes] | None = None

    def start(self, after_s: float) -> None:
        """Start the first one later, where Spark is installed."""
        if importlib.util.find_spec("pyspark") and shutil.which("java"):
            self._thread = threading.Thread(target=self._run, args=[after_s])
            self._thread.start()

    def end(self) -> None:
        """Wait for one that succeeds, now that all is quiet."""
        if self._thread is None:
            return
        self._over.set()
        self._thread.join()
        if not self._is_done and not self._clean():
            log = self._log.read_text(errors="replace")[-_LOG_CHARS:]
            self._note(f"stuck: Spark does not clean the topic in peace: {log}")

    def _run(self, after_s: float) -> None:
        if self._over.wait(after_s):
            return
        while not self._is_done and not self._over.is_set():
            self._is_done = self._clean()

    def _clean(self) -> bool:
        """Run the job to its end; return whether it has succeeded."""
        begun = self._recorder.begin("disrupt", "spark", name="clean_by_spark", node=-1)
        with self._log.open("ab") as output:
            self._job = subprocess.Popen(
                self._command, cwd=self._log.parent, stdout=output, stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        try:
            status = self._job.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._note(f"stuck: a job of Spark's did not end in {_PATIENCE_S} s")
            self.kill()
            return False
        self._recorder.end(begun)
        return status == 0

    def kill(self) -> None:
        """Kill the job that runs, if there is one; no other one begins."""
        self._over.set()
        if self._job is not None:
            self._job.kill()
            self._job.wait()
