"""The process of a broker for tests, which ends with the process that has started it.

`python -m odradek.testing.child serve …` runs the command `odradek`. Its standard input is a pipe
that nobody writes into: the system closes the pipe when the process of the tests ends, also when
that process is killed. A broker that outlived its tests would keep its port, memory and folder.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def main() -> None:
    """Run the command of this process's arguments."""
    threading.Thread(target=_stop_at_the_end_of_input, daemon=True).start()
    from odradek.cli.main import main as odradek

    odradek(prog_name="odradek")


def _stop_at_the_end_of_input() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
