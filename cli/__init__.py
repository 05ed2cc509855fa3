"""The command line."""

from broker.version import VERSION

__all__ = ["VERSION"]
