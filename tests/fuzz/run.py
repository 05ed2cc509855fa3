"""Fuzzes one target with bytes that reach new code: `python -m tests.fuzz.run TARGET [flags]`.

The flags are libFuzzer's: directories of inputs (the first receives what is found),
-max_total_time=600, -merge=1. The modules of `protocol` are instrumented, and each compiled
decoder when it is made.
"""

from __future__ import annotations

import sys
from typing import Any

import atheris


def main() -> None:
    """Run the target that the first argument names."""
    with atheris.instrument_imports(include=["odradek.protocol", "odradek.broker.security"]):
        from odradek.protocol.emitter import Emitter
        from tests.fuzz.costs import covered
        from tests.fuzz.targets import TARGETS

    compile_plainly = Emitter.compile

    def compile_instrumented(self: Emitter, function: str) -> Any:
        made = compile_plainly(self, function)
        return atheris.instrument_func(made) if function == "decode" else made

    Emitter.compile = compile_instrumented  # type: ignore[method-assign]
    target = {**TARGETS, "costs": covered}[sys.argv.pop(1)]
    target(bytes(8))  # loads what loads late
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
