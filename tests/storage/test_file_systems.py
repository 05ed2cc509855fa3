"""The operating system's files, and the simulated ones beside them."""

from __future__ import annotations

import contextlib
import errno
import gc
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage.errors import DirectoryInUse, DiskFailure
from odradek.storage.files import FileSystem
from odradek.storage.real_files import RealFileSystem
from tests.profiles import examples
from tests.simulation.crashfs import SECTOR_BYTES, CrashFileSystem

REAL = RealFileSystem()


@pytest.fixture(params=["real", "simulated"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    """A file system, and a directory in it."""
    if request.param == "real":
        return REAL, tmp_path
    fs = CrashFileSystem()
    fs.make_directory(tmp_path)
    return fs, tmp_path


def test_a_file_is_written_at_positions_and_read_anywhere(
    home: tuple[FileSystem, Path],
) -> None:
    fs, path = home
    file = fs.open(path / "file", write=True)
    assert file.append(0, (b"abc", memoryview(b"def"), bytearray(b"ghi"))) == 9
    assert file.append(3, (b"DEF",)) == 3
    assert file.read(2, 5) == b"cDEFg"
    assert file.read(7, 100) == b"hi"
    assert file.read(9, 1) == b""
    assert bytes(file.read_cached(2, 2) or b"") == b"cD"
    assert bytes(file.read_cached(7, 9) or b"") == b"hi"
    file.truncate(4)
    assert (file.size(), fs.size(path / "file"), fs.read_bytes(path / "file")) == (4, 4, b"abcD")
    file.truncate(6)
    assert file.read(0, 9) == b"abcD\0\0"
    file.sync()


def test_more_buffers_than_one_call_takes(home: tuple[FileSystem, Path]) -> None:
    fs, path = home
    buffers = [b"%d," % at for at in range(3_000)]
    file = fs.open(path / "file", write=True)
    assert file.append(0, buffers) == len(b"".join(buffers))
    assert fs.read_bytes(path / "file") == b"".join(buffers)


def test_a_freed_range_is_zeros(home: tuple[FileSystem, Path]) -> None:
    fs, path = home
    file = fs.open(path / "file", write=True)
    file.append(0, (b"abcdefgh",))
    file.free(2, 3)
    file.free(7, 100)
    assert file.read(0, 99) == b"ab\0\0\0fg\0"


def test_a_file_system_without_holes_is_reported_with_the_remedy() -> None:
    file = REAL.open(Path("/proc/self/comm"), write=True)
    with pytest.raises(DiskFailure, match="use ext4"):
        file.free(0, 1)


def test_names(home: tuple[FileSystem, Path]) -> None:
    fs, path = home
    fs.make_directory(path / "a" / "b")
    fs.make_directory(path / "a")
    fs.write_bytes(path / "a" / "one", b"1")
    fs.write_bytes(path / "a" / "two", b"2")
    assert fs.list(path / "a") == ["b", "one", "two"]
    assert fs.is_directory(path / "a")
    assert not fs.is_directory(path / "a" / "one")
    fs.rename(path / "a" / "one", path / "a" / "two")
    assert not fs.exists(path / "a" / "one")
    assert fs.read_bytes(path / "a" / "two") == b"1"
    fs.remove(path / "a" / "two")
    fs.remove(path / "a" / "two")
    fs.write_atomically(path / "a" / "three", b"3")
    fs.write_atomically(path / "a" / "three", b"33")
    assert fs.list(path / "a") == ["b", "three"]
    fs.write_bytes(path / "a" / "b" / "deep", b"")
    fs.sync_directory(path / "a")
    fs.remove_tree(path / "a")
    fs.remove_tree(path / "a")
    assert fs.list(path) == []


@pytest.mark.parametrize("is_private", [False, True])
def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(
    tmp_path: Path, is_private: bool
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    (tmp_path / "file.tmp").symlink_to(elsewhere)
    REAL.write_atomically(tmp_path / "file", b"new", is_private=is_private)
    assert elsewhere.read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_modification_times(home: tuple[FileSystem, Path]) -> None:
    fs, path = home
    fs.write_bytes(path / "file", b"")
    fs.set_modified_ms(path / "file", 1_234_567_890_123)
    assert fs.modified_ms(path / "file") == 1_234_567_890_123


def test_a_missing_file_is_refused_with_its_path(home: tuple[FileSystem, Path]) -> None:
    fs, path = home
    missing = path / "missing"
    for operation in (fs.open, fs.size, fs.list, fs.read_bytes, fs.sync_directory):
        with pytest.raises(DiskFailure) as refused:
            operation(missing)
        assert refused.value.path == missing
        assert "No such file" in str(refused.value)
    with pytest.raises(DiskFailure):
        fs.rename(missing, path / "other")


def test_a_lock_is_held_as_long_as_it_is_kept(home: tuple[FileSystem, Path]) -> None:
    fs, path = home
    held: object | None = fs.lock(path / ".lock")
    with pytest.raises(DirectoryInUse):
        fs.lock(path / ".lock")
    assert held is not None
    held = None
    gc.collect()
    assert fs.lock(path / ".lock") is not None


def test_a_removed_or_renamed_file_is_read_to_its_end(home: tuple[FileSystem, Path]) -> None:
    fs, path = home
    fs.write_bytes(path / "file", b"content")
    file = fs.open(path / "file")
    fs.rename(path / "file", path / "other")
    fs.remove(path / "other")
    assert file.read(0, 100) == b"content"


def test_closing_gives_up_descriptors_until_files_are_used_again(tmp_path: Path) -> None:
    fs = RealFileSystem()
    files = [fs.open(tmp_path / str(at), write=True) for at in range(20)]
    assert len(open_descriptors(tmp_path)) == 20
    fs.close()
    assert not open_descriptors(tmp_path)
    files[7].append(0, [b"content"])
    assert files[7].read(0, 100) == b"content"
    assert len(open_descriptors(tmp_path)) == 1
    fs.close()


def test_a_descriptor_goes_with_its_file(tmp_path: Path) -> None:
    files = [REAL.open(tmp_path / str(at), write=True) for at in range(20)]
    assert len(open_descriptors(tmp_path)) == 20
    del files
    gc.collect()
    assert not open_descriptors(tmp_path)


def test_writing_to_a_file_that_is_only_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    file = REAL.open(tmp_path / "file")
    with pytest.raises(DiskFailure):
        file.append(0, (b"y",))
    with pytest.raises(DiskFailure):
        file.truncate(0)


# --- what the simulated one promises ----------------------------------------------------------

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("ab"), st.binary(min_size=1, max_size=6)),
        st.tuples(st.just("truncate"), st.sampled_from("ab"), st.integers(0, 8)),
        st.tuples(st.just("sync"), st.sampled_from("ab"), st.none()),
        st.tuples(st.just("rename"), st.sampled_from("ab"), st.none()),
        st.tuples(st.just("sync_directory"), st.none(), st.none()),
    ),
    max_size=20,
)


@given(changes=CHANGES, seed=st.integers(0, 1 << 20))
def test_a_crash_keeps_what_was_synced(
    changes: list[tuple[str, str | None, bytes | int | None]], seed: int
) -> None:
    fs, root = CrashFileSystem(), Path("/")
    durable: dict[str, bytes] = {}  # by name, of names that no later rename touches
    for kind, name, what in changes:
        if kind == "sync_directory":
            fs.sync_directory(root)
            continue
        assert name is not None
        path = root / name
        file = fs.open(path, write=True)
        if kind == "write":
            assert isinstance(what, bytes)
            file.append(file.size(), (what,))
        elif kind == "truncate":
            assert isinstance(what, int)
            file.truncate(min(what, file.size()))
        elif kind == "sync":
            file.sync()
        else:
            fs.rename(path, root / "c")
    for name in ("a", "b", "c"):
        if fs.exists(root / name):
            fs.open(root / name).sync()
            durable[name] = fs.read_bytes(root / name)
    fs.sync_directory(root)
    survived = fs.clone_after_crash(seed)
    assert survived.files(root) == durable == fs.files(root)
    assert fs.clone_after_crash(seed).files(root) == survived.files(root)


def test_a_crash_may_lose_all_that_was_not_synced_and_may_keep_it() -> None:
    fs, root = CrashFileSystem(), Path("/")
    fs.open(root / "synced", write=True).append(0, (b"synced",))
    fs.open(root / "synced").sync()
    fs.sync_directory(root)
    fs.open(root / "synced").append(6, (b" and more",))
    fs.write_bytes(root / "entry", b"x")
    found = [fs.clone_after_crash(seed).files(root) for seed in range(200)]
    assert all(files["synced"].startswith(b"synced") for files in found)
    assert {b"synced", b"synced and more", b"synced an"} <= {files["synced"] for files in found}
    assert {"entry" in files for files in found} == {True, False}
    assert {files.get("entry") for files in found} == {None, b"", b"x", b"\0"}


def test_a_crash_may_keep_any_sectors_of_a_write() -> None:
    fs, path = CrashFileSystem(), Path("/file")
    fs.write_bytes(path, b"a" * SECTOR_BYTES + b"b" * SECTOR_BYTES + b"c")
    fs.sync_directory(path.parent)
    found = {fs.clone_after_crash(seed).read_bytes(path) for seed in range(200)}
    assert bytes(SECTOR_BYTES) + b"b" * SECTOR_BYTES in found
    assert b"a" * SECTOR_BYTES + bytes(SECTOR_BYTES) + b"c" in found


def test_bytes_that_a_failed_sync_has_forgotten_are_read_until_the_crash() -> None:
    fs, path = CrashFileSystem(), Path("/file")
    fs.write_bytes(path, b"forgotten")
    fs.sync_directory(path.parent)
    fs.failed_sync_forgets = True
    fs.refuse = lambda kind, _: OSError(errno.EIO, "I/O error") if kind == "sync" else None
    with pytest.raises(DiskFailure):
        fs.open(path, write=True).sync()
    fs.refuse = None
    fs.open(path, write=True).sync()
    assert fs.read_bytes(path) == b"forgotten"
    assert {fs.clone_after_crash(seed).read_bytes(path) for seed in range(50)} == {b""}


def open_descriptors(below: Path) -> list[str]:
    """The names of the files below a directory that this process has descriptors of."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = link.readlink()
            if target.is_relative_to(below):
                found.append(target.name)
    return found


@settings(max_examples=examples(30))
@given(
    uses=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["append", "read", "rename", "hold"]))
    )
)
@pytest.mark.slow
def test_more_files_than_descriptors(
    tmp_path_factory: pytest.TempPathFactory, uses: list[tuple[int, str]]
) -> None:
    path = tmp_path_factory.mktemp("files")
    fs = RealFileSystem(open_files_max=3)
    files = [fs.open(path / str(at), write=True) for at in range(10)]
    model = [b""] * 10
    for number, (at, use) in enumerate(uses):
        file = files[at]
        if use == "append":
            data = b"%d," % number
            file.append(len(model[at]), (data,))
            model[at] += data
        elif use == "rename":
            file.rename(path / f"{at}-{number}")
        elif use == "hold":
            # What is held is read to its end, whatever becomes of the file.
            held = file.hold()
            fs.rename(file.path, path / "away")
            fs.write_bytes(file.path, b"another file of the same name")
            assert held.read(0, 999) == model[at]
            fs.rename(path / "away", file.path)
            del held
        assert file.size() == len(model[at])
        assert file.read(0, 999) == model[at]
        del file
    assert len(open_descriptors(path)) <= 3
    assert [file.read(0, 999) for file in files] == model
    del files
    gc.collect()
    assert open_descriptors(path) == []


def test_a_file_that_is_gone_stays_gone(tmp_path: Path) -> None:
    fs = RealFileSystem(open_files_max=1)
    gone = fs.open(tmp_path / "gone", write=True)
    fs.open(tmp_path / "other", write=True).append(0, (b"o",))
    fs.remove(tmp_path / "gone")
    with pytest.raises(DiskFailure, match="No such file"):
        gone.append(0, (b"g",))
    assert not fs.exists(tmp_path / "gone")


def test_a_lock_keeps_a_process_out_that_locks_as_java_does(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    # What FileChannel.lock() does: a POSIX lock of the whole file.
    program = (
        "import fcntl, sys\n"
        f"file = open({str(lock)!r}, 'r+')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    lock.touch()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUse, match="in use by another process"):
            REAL.lock(lock)
        other.communicate(b"", timeout=60)
    held = REAL.lock(lock)
    refused = subprocess.run([sys.executable, "-c", program], input=b"", capture_output=True)
    assert b"BlockingIOError" in refused.stderr
    del held
