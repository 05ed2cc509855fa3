"""Clients in Python behind the verbs for transactions of tests/interop/programs.py."""
