"""`make cluster`: three brokers on this machine, until it is interrupted.

They share a catalog in a file of SQLite. Data is in the folder `data/cluster`, and is there again
at the next start.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from bench.processes import ROOT, end, wait_until_answering

_FOLDER = ROOT / "data" / "cluster"
_PORTS = {1: (9092, 9308), 2: (9093, 9309), 3: (9094, 9310)}


def main() -> None:
    """Start the brokers, print where they are, and wait."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    brokers = [_start(node_id) for node_id in _PORTS]
    try:
        for (port, http), broker in zip(_PORTS.values(), brokers, strict=True):
            wait_until_answering(port, broker, _FOLDER / f"broker-{port}.log")
            print(f"broker at 127.0.0.1:{port}, web page at http://127.0.0.1:{http}/")
        print(f"data and logs in {_FOLDER}; press Ctrl-C to stop", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print()
    finally:
        for broker in brokers:
            broker.terminate()
        for broker in brokers:
            end(broker)


def _start(node_id: int) -> subprocess.Popen[bytes]:
    port, http = _PORTS[node_id]
    settings = {
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "metrics.listener": f"127.0.0.1:{http}",
        "log.dirs": str(_FOLDER / f"broker-{node_id}"),
        "odradek.catalog.url": f"sqlite://{_FOLDER / 'catalog.db'}",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "odradek.cli.main", "serve", *words]
    with (_FOLDER / f"broker-{port}.log").open("ab") as output:
        # A group of its own: Ctrl-C reaches the brokers through this process alone.
        return subprocess.Popen(
            command, stdout=output, stderr=output, cwd=ROOT, start_new_session=True
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
