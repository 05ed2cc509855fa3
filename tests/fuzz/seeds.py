"""How much the long tests do, and where they begin, by FUZZ_SEED and eight counts.

`make fuzz` plays FUZZ_SCRIPTS, FUZZ_KILLS, FUZZ_CLUSTERS, FUZZ_SHARED and FUZZ_CONVERSIONS, and
feeds bytes for FUZZ_SECONDS; `make interop` cleans FUZZ_HISTORIES beside Kafka, and asks both
brokers the same in FUZZ_WORLDS worlds.

The same numbers give the same scripts again. What fails prints its seed.
"""

from __future__ import annotations

import os

FIRST_SEED = int(os.environ.get("FUZZ_SEED", "0"))
SCRIPTS = int(os.environ.get("FUZZ_SCRIPTS", "24"))
KILLS = int(os.environ.get("FUZZ_KILLS", "50"))
CLUSTERS = int(os.environ.get("FUZZ_CLUSTERS", "1000"))
SHARED = int(os.environ.get("FUZZ_SHARED", "1000"))
CONVERSIONS = int(os.environ.get("FUZZ_CONVERSIONS", "300"))
SECONDS = int(os.environ.get("FUZZ_SECONDS", "240"))
HISTORIES = int(os.environ.get("FUZZ_HISTORIES", "3000"))
WORLDS = int(os.environ.get("FUZZ_WORLDS", "4"))
SEEDS = range(FIRST_SEED, FIRST_SEED + SCRIPTS)
