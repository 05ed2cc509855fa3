"""How much `make fuzz` does, and where it begins: FUZZ_SCRIPTS, FUZZ_SEED, FUZZ_KILLS.

The same numbers give the same scripts again. What fails prints its seed.
"""

from __future__ import annotations

import os

FIRST_SEED = int(os.environ.get("FUZZ_SEED", "0"))
SCRIPTS = int(os.environ.get("FUZZ_SCRIPTS", "24"))
KILLS = int(os.environ.get("FUZZ_KILLS", "50"))
SEEDS = range(FIRST_SEED, FIRST_SEED + SCRIPTS)
