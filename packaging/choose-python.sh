#!/bin/sh
# Prints the Python that `make` uses: python3, or the system's own if python3 was built without
# optimization, as pyenv builds it by default. The same work takes such a Python a tenth more time.
system=${1:-/usr/bin/python3}
is_optimized='import sys, sysconfig
sys.exit("--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""))'
is_usable='import ensurepip, sys, venv
sys.exit(sys.version_info < (3, 11))'
if ! python3 -c "$is_optimized" 2>/dev/null && "$system" -c "$is_usable" 2>/dev/null; then
    echo "$system"
else
    echo python3
fi
