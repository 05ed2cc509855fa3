"""The output of commands in JSON, which other programs read."""

from __future__ import annotations

import json

import click


def print_json(document: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2))
