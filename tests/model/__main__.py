"""Explores the protocol within other bounds: `python -m tests.model --brokers 3 --records 3`.

Each field of Bounds is an option. `--without NAME` takes a guard away, and prints the shortest
trace to the promise that breaks then. Without options for troubles each of them comes once.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.model.explorer import TooManyStates
from tests.model.guards import Rules, without
from tests.model.protocol import run
from tests.model.states import Bounds, Budget


def main(arguments: list[str]) -> int:
    """Explore one world; return 1 if a promise is broken in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    for name, value in Bounds()._asdict().items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=value)
        else:
            parser.add_argument(option, type=type(value))
    parser.add_argument("--without", choices=Rules._fields)
    parser.add_argument("--states-max", type=int, default=3_000_000)
    given = vars(parser.parse_args(arguments))
    removed, states_max = given.pop("without"), given.pop("states_max")
    wanted = {name: value for name, value in given.items() if value is not None}
    if not any(wanted.get(name) for name in Budget._fields):
        wanted |= {name: 1 for name in Budget._fields if name != "rollbacks"}
    bounds = Bounds(**wanted)
    print(bounds, flush=True)
    begun_s = time.perf_counter()
    try:
        found = run(bounds, without(removed) if removed else None, states_max=states_max)
    except TooManyStates as error:
        print(f"{error}: allow fewer troubles, or more states with --states-max")
        return 2
    took_s = time.perf_counter() - begun_s
    print(f"states={found.states:,} steps={found.taken.total():,} depth={found.depth} "
          f"seconds={took_s:.1f}")  # fmt: skip
    print("no promise is broken" if found.violation is None else found.violation)
    return int(found.violation is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
