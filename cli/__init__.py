"""The command line."""

VERSION = "0.1.0"
