"""A server of S3 of its own: versitygw over a temporary folder, on a free port."""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import ROOT, NotInstalled, free_port, wait_for
from odradek.storage.objects.opening import StoreOptions

PROGRAM = ROOT / ".s3" / "versitygw"
KEY_ID = "an-id"
KEY = "a-key-of-its-own"
REGION = "us-east-1"


@dataclass
class S3Server:
    """A server, which may be killed and started again."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def options(
        self, access_key_id: str = KEY_ID, secret_access_key: str = KEY
    ) -> StoreOptions:
        """Return options that reach it."""
        return StoreOptions(
            endpoint=self.endpoint,
            region=REGION,
            path_style=True,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            request_timeout_ms=10_000,
        )

    def settings(self, bucket_url: str, port: int) -> dict[str, str]:
        """Return settings of brokers that reach a bucket, perhaps by another port."""
        return {
            "odradek.object.store.url": bucket_url,
            "odradek.object.store.endpoint": f"http://127.0.0.1:{port}",
            "odradek.object.store.region": REGION,
            "odradek.object.store.path.style": "true",
            "odradek.object.store.access.key.id": KEY_ID,
            "odradek.object.store.secret.access.key": KEY,
        }

    def create_bucket(self, name: str) -> str:
        """Create a bucket; return its URL."""
        (self.folder / "buckets" / name).mkdir()
        return f"s3://{name}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        (self.folder / "buckets").mkdir(exist_ok=True)
        keys = {"ROOT_ACCESS_KEY_ID": KEY_ID, "ROOT_SECRET_ACCESS_KEY": KEY}
        command = [
            str(PROGRAM), "--port", f"127.0.0.1:{self.port}", "--region", REGION,
            "--health", "/health", "--keep-alive", "--quiet",
            # An MD5 of each object, which nobody asks for, would take half of its CPU time.
            "posix", "--data-integrity-etag", str(self.folder / "buckets"),
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, **keys}
            )
        wait_for(self._answers, "versitygw answers")

    def kill(self) -> None:
        """Kill the server."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._log_text()
        try:
            urllib.request.urlopen(f"{self.endpoint}/health", timeout=5).close()
        except OSError:
            return False
        return True

    def _log_text(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


@contextmanager
def running() -> Iterator[S3Server]:
    """Run a new server. Raises NotInstalled."""
    if not PROGRAM.exists():
        raise NotInstalled("versitygw is not built (make s3, which needs Go)")
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:
        server = S3Server(Path(folder), free_port())
        try:
            server.start()
            yield server
        finally:
            server.kill()
