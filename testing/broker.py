"""A broker in a process of its own, for tests: on loopback, with data in a temporary folder."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.testing.ports import free_port

if TYPE_CHECKING:
    from types import TracebackType

    from confluent_kafka.admin import AdminClient

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 30.0
# The folder that has the package `odradek`: site-packages, or a checkout.
_PLACE = Path(__file__).absolute().parents[2]
# A service manager's socket, and variables that choose other settings or another log format.
_NOT_INHERITED = re.compile(r"KAFKA_|NOTIFY_SOCKET$|CLUSTER_ID$|ODRADEK_")
_ACCEPTS = re.compile(r"^odradek \S+ accepts connections on ([^\s,]+)", re.M)
_WEB_PAGE = re.compile(r"^web page on (\S+)", re.M)


class BrokerError(Exception):
    """The broker did not start or stop, or refused a topic; the message gives the reason."""


class OdradekBroker:
    """`odradek serve` on free ports of 127.0.0.1; it can be stopped, killed and started again.

    As a context manager it starts, and at the end stops and removes its folder.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        log_level: str = "INFO",
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Choose Kafka's settings, which win over those that suit tests; start nothing yet."""
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            # The web page, /metrics and /health: "127.0.0.1:0" serves them on a free port.
            "metrics.listener": "",
            # A consumer of a test has no other members to wait for.
            "group.initial.rebalance.delay.ms": "0",
            # Records of a test need not survive a power failure: no answer waits for the disk.
            "log.flush.acks.all": "false",
            **(settings or {}),
        }
        self.log_level = log_level
        self.start_timeout_s = start_timeout_s
        self.process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._printed = ""

    def __enter__(self) -> OdradekBroker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, `127.0.0.1:port`; that of the first of several listeners."""
        return self._found(_ACCEPTS)

    @property
    def url(self) -> str:
        """The URL of the web page and of /metrics, for a broker with `metrics.listener`."""
        if not self.settings["metrics.listener"]:
            raise BrokerError("no URL: set metrics.listener to 127.0.0.1:0")
        return self._found(_WEB_PAGE)

    @property
    def folder(self) -> Path:
        """The folder with the data and the log, which is there until `close`."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="odradek-"))
        return self._folder

    @property
    def log_file(self) -> Path:
        """The broker's log, of all its runs."""
        return self.folder / "broker.log"

    def log_text(self) -> str:
        """Return the broker's log so far, "" before the first start."""
        is_there = self._folder is not None and self.log_file.exists()
        return self.log_file.read_text(errors="replace") if is_there else ""

    def start(self) -> None:
        """Start the broker, on the data of its run before; return when it accepts connections.

        Raises BrokerError with the broker's log when it does not start.
        """
        if self.process is not None:
            raise BrokerError("the broker has been started: stop it first")
        settings = {"log.dirs": str(self.folder / "data"), **self.settings}
        options = ["--log-format", "text", "--log-level", self.log_level]
        options += [f"--set={name}={value}" for name, value in settings.items()]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "odradek.testing.child", "serve", *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=_environment(),
                # Ctrl-C is for the tests, which then stop the broker after its clients.
                start_new_session=True,
            )
        atexit.register(self.close)
        try:
            self._await_start(self.process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop the broker as a service manager would, and wait until it is gone.

        Its data stays, for another start. Raises BrokerError when it had to be killed.
        """
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            log = self.log_text()
            raise BrokerError(f"the broker did not stop in {STOP_TIMEOUT_S} s:\n{log}") from None
        finally:
            _close_pipes(process)

    def kill(self) -> None:
        """End the broker at once (SIGKILL), as a crash would; its data stays."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)

    def close(self) -> None:
        """Stop the broker, and remove its folder with all data."""
        atexit.unregister(self.close)
        try:
            self.stop()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def create_topic(
        self,
        prefix: str = "topic",
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> str:
        """Create a topic, and return its name: the prefix and letters that no other topic has.

        `config` has the topic's settings, `client` librdkafka's properties of a login.
        Raises BrokerError when the broker refuses.
        """
        from confluent_kafka.admin import NewTopic

        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        self._ask(client, lambda admin: admin.create_topics([topic]), name)
        return name

    def delete_topic(self, name: str, *, client: Mapping[str, Any] | None = None) -> None:
        """Delete a topic, if it is still there. Raises BrokerError when the broker refuses."""
        self._ask(client, lambda admin: admin.delete_topics([name]), name, "UNKNOWN_TOPIC_OR_PART")

    def _ask(
        self,
        client: Mapping[str, Any] | None,
        request: Callable[[AdminClient], Any],
        name: str,
        accepted: str = "",
    ) -> None:
        """Send a request about a topic; the error named `accepted` counts as success."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        properties = {"bootstrap.servers": self.bootstrap_servers, **(client or {})}
        admin = AdminClient(properties)
        try:
            request(admin)[name].result(_ANSWER_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() != accepted:
                raise BrokerError(f"topic {name}: {error.args[0].str()}") from None

    def _found(self, pattern: re.Pattern[str]) -> str:
        found = pattern.search(self._printed)
        if found is None:
            raise BrokerError("the broker has not been started: call start, or use `with`")
        return found[1]

    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        """Read the lines that the broker prints once it accepts connections."""
        assert process.stdout is not None
        expected = [_ACCEPTS, _WEB_PAGE] if self.settings["metrics.listener"] else [_ACCEPTS]
        deadline_s = time.monotonic() + self.start_timeout_s
        printed = b""
        while not printed.endswith(b"\n") or not all(
            one.search(printed.decode(errors="replace")) for one in expected
        ):
            left_s = max(deadline_s - time.monotonic(), 0)
            if not select.select([process.stdout], [], [], left_s)[0]:
                raise self._not_started(f"in {self.start_timeout_s:g} s")
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                process.wait()
                raise self._not_started(f"(exit status {process.returncode})")
            printed += piece
        self._printed = printed.decode(errors="replace")

    def _not_started(self, how: str) -> BrokerError:
        return BrokerError(f"the broker did not start {how}:\n{self.log_text()}")


def _environment() -> dict[str, str]:
    """Return the environment of a broker, which finds the same package `odradek` as this process.

    site-packages is on the interpreter's own path, and would be before Python's modules here.
    """
    own = {name: text for name, text in os.environ.items() if not _NOT_INHERITED.match(name)}
    if _PLACE.name not in ("site-packages", "dist-packages"):
        paths = [str(_PLACE), own.get("PYTHONPATH", "")]
        own["PYTHONPATH"] = os.pathsep.join(one for one in paths if one)
    return own


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
