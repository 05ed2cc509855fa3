"""Reads and writes records by the schemas of a schema registry.

It needs the extra `console` (pip install odradek[console]); `registry` alone does not.
"""
