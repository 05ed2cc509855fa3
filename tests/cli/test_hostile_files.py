"""Files that somebody has prepared to do harm: dump-log and adopt end soon, in little memory.

Each says what is wrong in a line of its own, and changes nothing.
"""

from __future__ import annotations

import json
import os
import resource
import stat
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.protocol.batches import Record, batch_crc, encode_batch, read_header, replace_section
from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Codec, compress
from odradek.protocol.records_plain import encode_varint
from tests.support.forking import fork_server

MEMORY_BYTES = 2 << 30  # of addresses, of which the interpreter's libraries take a part
TIME_S = 60  # of the processor, for what takes some seconds
SEGMENT = "00000000000000000000"
EVIL = "\x1b]0;owned\x07\x9b2J\u202e"


def odradek(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command within bounds; it ends, in its own words."""

    limits = {resource.RLIMIT_AS: MEMORY_BYTES, resource.RLIMIT_CPU: TIME_S}
    ended = fork_server().run(list(map(str, arguments)), timeout=10 * TIME_S, limits=limits)
    assert ended.returncode in (0, 1), ended
    assert "Traceback" not in ended.stderr
    for line in ended.stderr.splitlines():
        assert line.startswith(("odradek: ", "Error: ", "found damage: ")) and line.isprintable()
    return ended


def packed(section: bytes, count: int) -> bytes:
    """Return a batch whose records are this, packed."""
    header = read_header(encode_batch([Record(0, 5, b"k", b"v")]))
    made = replace_section(header, compress(Codec.ZSTD, section), Codec.ZSTD)
    return claiming(made, count)


def claiming(batch: bytes | bytearray, count: int) -> bytes:
    """Return a batch that claims so many records."""
    made = bytearray(batch)
    struct.pack_into(">i", made, 57, count)
    struct.pack_into(">I", made, 17, batch_crc(made, 0, len(made)))
    return bytes(made)


def many_headers(count: int) -> bytes:
    body = b"\0\0\0\x01\x01" + encode_varint(count) + b"\0\x01" * count
    return packed(encode_varint(len(body)) + body, 1)


def large_value(size_bytes: int) -> bytes:
    body = b"\0\0\0\x01" + encode_varint(size_bytes) + bytes(size_bytes) + b"\0"
    return encode_varint(len(body)) + body


def false_batches(size_bytes: int) -> bytes:
    """Return bytes of which each 61 begin a batch that claims all that follows."""
    found = bytearray(size_bytes)
    for at in range(0, size_bytes - 61, 61):
        struct.pack_into(">qiibIhi", found, at, 1, size_bytes - at - 12, 0, 2, 0, 0, 0)
    return bytes(found)


def sparse(path: Path, size_bytes: int = 3 << 30) -> None:
    """Make a file that is large, and takes no room."""
    with path.open("wb") as file:
        file.truncate(size_bytes)


def snapshot(count: int) -> bytes:
    rest = struct.pack(">i", count)
    return struct.pack(">hI", 1, crc32c(rest)) + rest


SOUND = encode_batch([Record(0, 5, b"k", b"v")])
CONTENT: dict[str, Callable[[], bytes]] = {
    "very many records": lambda: packed(b"\x0c\0\0\0\x01\x01\0" * 200_000, 200_000),
    "a value of 60 MiB": lambda: packed(large_value(60 << 20), 1),
    "two million headers": lambda: many_headers(2_000_000),
    "claims of 2^31 records": lambda: claiming(SOUND, 2**31 - 1) + packed(b"\x80" * 99, 2**31 - 1),
    "batches within batches": lambda: b"\xff" * 61 + false_batches(8 << 20),
    "nothing but magic": lambda: bytes([2]) * (1 << 19),
    "a negative size": lambda: SOUND[:8] + b"\xff" * 4 + SOUND[12:],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("content", CONTENT)
def test_a_hostile_segment_is_dumped_within_bounds(
    content: str, form: str, tmp_path: Path
) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{SEGMENT}.log").write_bytes(CONTENT[content]())
    how = ("--json",) if form == "json" else ()
    odradek("dump-log", folder, "--records", "--deep", *how)


@pytest.mark.slow
def test_hostile_files_of_other_kinds_are_dumped_within_bounds(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{SEGMENT}.log").write_bytes(SOUND)
    (folder / f"{SEGMENT}.index").write_bytes(struct.pack(">ii", -5, -5) * 9)
    (folder / f"{SEGMENT}.timeindex").write_bytes(b"\x7f" * 12_000)
    (folder / f"{SEGMENT}.txnindex").write_bytes(b"\xff" * 34_001)
    (folder / f"{SEGMENT}.snapshot").write_bytes(snapshot(2**31 - 1))
    (folder / "00000000000000000007.snapshot").write_bytes(snapshot(-1))
    (folder / "²²²²²²²²²²²²²²²²²²²².snapshot").write_bytes(b"")
    sparse(folder / "00000000000000000009.index")
    sparse(folder / "00000000000000000009.txnindex")
    sparse(folder / "partition.metadata")
    sparse(tmp_path / "meta.properties")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n" + "9" * 5_000 + " 1\n")
    lines = "".join(f"{EVIL} 0 {at}\n" for at in range(1_000_000))
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1000000\n{lines}")
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt {'9' * 5_000} 0\n")
    ended = odradek("dump-log", tmp_path, "--deep")
    assert ended.returncode == 1
    named = ("09.index", "09.txnindex", "partition.metadata", "meta.properties", "leader-epoch")
    for name in named:
        assert any(name in line for line in ended.stderr.splitlines()), name


def test_irregular_files_are_neither_opened_nor_followed(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "t-0"
    folder.mkdir(parents=True)
    (folder / f"{SEGMENT}.log").write_bytes(SOUND)
    secret = tmp_path / "00000000000000000001.log"
    secret.write_bytes(SOUND)
    os.mkfifo(folder / "00000000000000000003.log")
    os.mkfifo(folder / "leader-epoch-checkpoint")
    (folder / "00000000000000000001.log").symlink_to(secret)
    (folder / "00000000000000000002.log").symlink_to("/dev/zero")
    (folder / "around").symlink_to(tmp_path)
    ended = odradek("dump-log", tmp_path / "data")
    assert ended.returncode == 0 and "01.log" not in ended.stdout
    ended = odradek("dump-log", folder / "00000000000000000003.log")
    assert ended.returncode == 1 and "no regular file" in ended.stderr


def test_the_contents_of_a_record_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    evil = EVIL.encode()
    headers = ((EVIL, evil), ("\udcff", None))
    (folder / f"{SEGMENT}.log").write_bytes(encode_batch([Record(0, 5, evil, evil, headers)]))
    table = odradek("dump-log", folder, "--records").stdout
    assert all(line.isprintable() for line in table.splitlines())
    lines = odradek("dump-log", folder, "--records", "--json").stdout.splitlines()
    assert all(line.isprintable() for line in lines)
    (record,) = [one for one in map(json.loads, lines) if one["kind"] == "record"]
    assert record["key"] == EVIL and record["headers"][0] == {"key": EVIL, "value": EVIL}


# --- adopt --------------------------------------------------------------------------------------


def kafkas(path: Path) -> Path:
    """Make a log directory of Kafka's with one sound partition."""
    folder = path / "data"
    (folder / "sound-0").mkdir(parents=True)
    (folder / "sound-0" / f"{SEGMENT}.log").write_bytes(SOUND)
    (folder / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    return folder


def state(folder: Path) -> dict[str, object]:
    return {
        str(one.relative_to(folder)): (found.st_ino, found.st_mode, found.st_size, found.st_mtime)
        for one in sorted(folder.rglob("*"))
        if not (found := one.lstat()).st_mode & stat.S_IFDIR
    }


def adopt(folder: Path, *how: str) -> subprocess.CompletedProcess[str]:
    """Adopt a directory, which stays as it is, but for what an adoption adds to it."""
    before = state(folder)
    ended = odradek("adopt", folder, "--without-metadata", *how)
    after = state(folder)
    assert before.items() <= after.items()
    assert not any(char in ended.stdout for char in "\x1b\x07\x9b\u202e")
    return ended


def test_partitions_that_lead_elsewhere_are_not_adopted(tmp_path: Path) -> None:
    folder = kafkas(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "link-0").symlink_to(elsewhere)
    for name, make in {
        "fifo-0": os.mkfifo,
        "file-0": lambda path: path.symlink_to("/dev/zero"),
        "deep-0": Path.mkdir,
    }.items():
        (folder / name).mkdir()
        make(folder / name / f"{SEGMENT}.log")
    ended = adopt(folder)
    assert ended.returncode == 1
    for name in ("link-0", "fifo-0", "file-0", "deep-0"):
        assert name in ended.stdout
    assert adopt(folder, "--force").returncode == 0
    assert list(elsewhere.iterdir()) == []


@pytest.mark.slow
def test_absurd_files_end_an_adoption_soon_and_in_a_line(tmp_path: Path) -> None:
    folder = kafkas(tmp_path)
    for name in (f"many-{10**7}", f"more-{10**9}", f"most-{'9' * 200}", f"{EVIL}-0"):
        (folder / name).mkdir()
    sound = folder / "sound-0"
    (sound / "²²²²²²²²²²²²²²²²²²²².snapshot").write_bytes(b"")
    (sound / f"{SEGMENT}.snapshot").write_bytes(snapshot(2**31 - 1))
    (sound / f"{SEGMENT}.index").write_bytes(struct.pack(">ii", 5, 2**31 - 1))
    sparse(sound / "partition.metadata")
    sparse(folder / "log-start-offset-checkpoint")
    (sound / "leader-epoch-checkpoint").write_text(f"0\n1\n{2**40} {2**70}\n")
    ended = adopt(folder, "--force")
    assert ended.returncode == 0, ended
    for text in (f"version=1\ncluster.id=c\nnode.id={'9' * 5_000}\n", "\xff" * 99, "version=1\n"):
        (folder / "odradek.db").unlink(missing_ok=True)
        (folder / "meta.properties").write_text(text)
        ended = adopt(folder)
        assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1
    sparse(folder / "meta.properties")
    ended = adopt(folder)
    assert ended.returncode == 1 and "meta.properties" in ended.stderr
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={EVIL}[red]\nnode.id=1\n")
    adopt(folder)
