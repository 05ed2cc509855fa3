"""The command line."""

from odradek.broker.version import VERSION

__all__ = ["VERSION"]
