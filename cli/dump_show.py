"""The output of dump-log: a table that grows as files are read, or JSON."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import click

from odradek.cli.dump_rows import Row, Wanted, reader_of
from odradek.cli.dump_words import Decoded, sentence
from odradek.cli.words import time_text
from odradek.config.printable import printable
from odradek.storage.errors import CorruptFile, StorageError
from odradek.storage.real_files import RealFileSystem

# Title, width (negative: to the left), and the function that picks the value from the fields.
_Column = tuple[str, int, Callable[[Mapping[str, object]], object]]
# Control characters that JSON leaves unchanged, characters that reverse text or break lines, and
# halves of surrogate pairs, which stand for bytes of a name that are not UTF-8.
_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]+"
)
_ASCII_MAX = 0x7F
_Headers = Iterable[tuple[str, bytes | None]]


def files_of(path: Path) -> Iterator[Path]:
    """Yield the files to read: the one named, or all in a directory. Raises ClickException."""
    name = printable(str(path))
    if not path.is_dir():
        if reader_of(path) is None:
            raise click.ClickException(
                f"{name} is not a file that dump-log can read: name a .log, .index, .timeindex, "
                ".txnindex, .snapshot or checkpoint file, or a directory with such files"
            )
        yield path
        return
    found = sorted(_below(path))
    if not found:
        raise click.ClickException(
            f"{name} has no segments or checkpoints: name a directory of log.dirs, or the "
            "directory of a partition"
        )
    yield from found


def _below(path: Path) -> Iterator[Path]:
    """Yield the files in and below a directory that have a reader; follows no links."""
    for folder, _, names in os.walk(path):
        for one in (Path(folder, name) for name in names):
            if reader_of(one) is not None and one.is_file() and not one.is_symlink():
                yield one


def dump(path: Path, wanted: Wanted, show: Callable[[Path, Row], None]) -> Iterator[str]:
    """Show a file's rows, and yield a line for each damage."""
    reader = reader_of(path)
    assert reader is not None, "files_of yields files with a reader only"
    try:
        for row in reader(RealFileSystem(), path, wanted):
            if isinstance(row, Row):
                show(path, row)
            else:
                yield _named(row)
    except CorruptFile as damage:
        yield _named(damage)
    except StorageError as error:
        yield f"cannot read {error}"


def _named(damage: CorruptFile) -> str:
    offset = "" if damage.offset is None else f", offset {damage.offset}"
    return f"{damage.path} is damaged at position {damage.position}{offset}: {damage.cause}"


def show_json(path: Path, row: Row) -> None:
    """Print a row as a JSON object in a line; bytes that are not text become base64."""
    document: dict[str, object] = {"file": str(path), "kind": row.kind}
    for name, value in row.fields.items():
        if isinstance(value, bytes):
            text = _text(value)
            document |= {name: text} if text is not None else {f"{name}_base64": _base64(value)}
        elif name == "headers":
            document[name] = [_header(*one) for one in cast(_Headers, value)]
        else:
            document[name] = value
    click.echo(_UNPRINTABLE.sub(_escaped, json.dumps(document, ensure_ascii=False)))


def _escaped(found: re.Match[str]) -> str:
    """Write characters as JSON escapes: the same value, without effect on a terminal."""
    return "".join(
        json.dumps(one)[1:-1] if ord(one) > _ASCII_MAX else f"\\u{ord(one):04x}"
        for one in found[0]
    )


def _header(name: str, value: bytes | None) -> dict[str, str | None]:
    text = None if value is None else _text(value)
    if value is None or text is not None:
        return {"key": name, "value": text}
    return {"key": name, "value_base64": _base64(value)}


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


class Table:
    """Prints rows as they come, in columns of fixed widths; a wider value shifts its line."""

    def __init__(self) -> None:
        self._under: tuple[Path, str] | None = None
        self._file: Path | None = None

    def show(self, path: Path, row: Row) -> None:
        """Print a row; before it the file's name and the titles, where they change."""
        if path != self._file:
            click.echo(f"{'' if self._file is None else chr(10)}{printable(str(path))}")
            self._file = path
        if row.kind == "record":
            click.echo(printable(f"    {_record_line(row.fields)}"))
            return
        columns = _COLUMNS.get(row.kind)
        if columns is None:
            fields = "  ".join(f"{name}={value}" for name, value in row.fields.items())
            click.echo(f"  {printable(fields)}")
            return
        if self._under != (path, row.kind):
            self._under = path, row.kind
            click.echo(_line((title, width, title) for title, width, _ in columns))
        line = _line((title, width, of(row.fields)) for title, width, of in columns)
        click.echo(printable(line))


def _line(cells: Iterator[tuple[str, int, object]]) -> str:
    shown = []
    for _, width, value in cells:
        text = "-" if value is None else str(value)
        shown.append(text.ljust(-width) if width < 0 else text.rjust(width))
    return ("  " + "  ".join(shown)).rstrip()


def _record_line(fields: Mapping[str, object]) -> str:
    head = f"{fields['offset']}  {_when(fields['timestamp'])}"
    if "control" in fields:
        return f"{head}  {fields['control']} coordinator epoch {fields['coordinator_epoch']}"
    if isinstance(fields.get("decoded"), Mapping):
        return f"{head}  {sentence(cast(Decoded, fields['decoded']))}"
    key, value = _printable(fields["key"]), _printable(fields["value"])
    headers = [f"{name}: {_printable(one)}" for name, one in cast(_Headers, fields["headers"])]
    ending = f"  headers [{', '.join(headers)}]" if headers else ""
    if "cut" in fields:
        ending += f"  cut: {', '.join(cast(Iterable[str], fields['cut']))}"
    wrong = f"  undecodable: {fields['undecodable']}" if "undecodable" in fields else ""
    return f"{head}  key {key}  value {value}{ending}{wrong}"


def _printable(data: object) -> str:
    if data is None:
        return "null"
    assert isinstance(data, bytes)
    text = _text(data)
    return text if text is not None and text.isprintable() else f"base64:{_base64(data)}"


def _of(name: str) -> Callable[[Mapping[str, object]], object]:
    return lambda fields: fields[name]


def _at(name: str) -> Callable[[Mapping[str, object]], object]:
    return lambda fields: _when(fields[name])


def _when(timestamp: object) -> str:
    assert isinstance(timestamp, int)
    return "no timestamp" if timestamp < 0 else time_text(timestamp)


def _count(fields: Mapping[str, object]) -> object:
    return fields["count"] if fields["count"] != -1 else "?"  # a wrapper of an older format


def _producer(fields: Mapping[str, object]) -> object:
    if fields["producer_id"] is None:
        return None
    return f"{fields['producer_id']}/{fields['producer_epoch']}/{fields['base_sequence']}"


def _marks(fields: Mapping[str, object]) -> str | None:
    names = {"is_transactional": "txn", "is_control": "control"}
    return ",".join(word for name, word in names.items() if fields[name]) or None


_COLUMNS: Mapping[str, Sequence[_Column]] = {
    "batch": (
        ("position", 10, _of("position")),
        ("base offset", 12, _of("base_offset")),
        ("last offset", 12, _of("last_offset")),
        ("count", 6, _count),
        ("size", 8, _of("size")),
        ("codec", -6, _of("codec")),
        ("epoch", 5, _of("leader_epoch")),
        ("producer/epoch/seq", -18, _producer),
        ("marks", -11, _marks),
        ("max timestamp", -24, _at("max_timestamp")),
        ("CRC", -5, lambda fields: "ok" if fields["crc_ok"] else "WRONG"),
    ),
    "offset index entry": (("offset", 12, _of("offset")), ("position", 10, _of("position"))),
    "time index entry": (("timestamp", -24, _at("timestamp")), ("offset", 12, _of("offset"))),
    "aborted transaction": (
        ("producer", 10, _of("producer_id")),
        ("first offset", 12, _of("first_offset")),
        ("last offset", 12, _of("last_offset")),
        ("stable offset", 13, _of("last_stable_offset")),
    ),
    "producer": (
        ("producer", 10, _of("producer_id")),
        ("epoch", 5, _of("producer_epoch")),
        ("coordinator epoch", 17, _of("coordinator_epoch")),
        ("last sequence", 13, _of("last_sequence")),
        ("last offset", 12, _of("last_offset")),
        ("open since", 12, _of("transaction_first_offset")),
        ("last timestamp", -24, _at("last_timestamp")),
    ),
    "leader epoch": (("epoch", 8, _of("epoch")), ("start offset", 12, _of("start_offset"))),
    "checkpoint": (
        ("offset", 12, _of("offset")),
        ("partition", 9, _of("partition")),
        ("topic", -5, _of("topic")),
    ),
}
