"""`make cluster`: three brokers on this machine, until it is interrupted.

They share a catalog in a file of SQLite. Data is in the folder `data/cluster`, and is there again
at the next start. With OBJECT_STORE=s3://bucket/prefix, or file:///folder, the topics are in that
object store (docs/object-storage.md).
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

from bench.processes import ROOT, OdradekProcess

_FOLDER = ROOT / "data" / "cluster"
_PORTS = {1: (9092, 9308), 2: (9093, 9309), 3: (9094, 9310)}


def _sharing() -> dict[str, str]:
    url = os.environ.get("OBJECT_STORE")
    return {"odradek.object.store.url": url} if url else {}


def main() -> None:
    """Start the brokers, print where they are, and wait."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            for node_id, (port, http_port) in _PORTS.items():
                broker = OdradekProcess(
                    _FOLDER / f"broker-{node_id}",
                    {
                        "node.id": str(node_id),
                        "odradek.catalog.url": f"sqlite://{_FOLDER / 'catalog.db'}",
                        **_sharing(),
                    },
                    is_apart=True,
                    port=port,
                    http_port=http_port,
                )
                stack.callback(broker.stop)
                broker.start()
                print(f"broker at {broker.bootstrap}, web page at {broker.http}/")
            print(f"data and logs in {_FOLDER}; press Ctrl-C to stop", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
