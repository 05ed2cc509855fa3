"""Object stores that cannot be used, or not now, and the texts of their errors."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.servers.s3_server import KEY, KEY_ID, S3Server
from odradek.storage.objects.failures import failure_of
from odradek.storage.objects.opening import StoreOptions, open_store
from odradek.storage.objects.probe import probe
from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    ObjectStoreError,
    StoreRefused,
    StoreUnavailable,
)
from tests.storage.object_stores import bucket, s3_server

__all__ = ["bucket", "s3_server"]

CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "create": lambda store: store.create("k", b"data"),
    "read": lambda store: store.read("k"),
    "read_range": lambda store: store.read_range("k", 0, 1),
    "size": lambda store: store.size("k"),
    "list_objects": lambda store: list(store.list_objects("k/")),
    "delete": lambda store: store.delete(["k"]),
    "delete two": lambda store: store.delete(["k", "l"]),
    "probe": probe,
}
HIDDEN = "hidden"
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def shown(call: Callable[[ObjectStore], object], store: ObjectStore) -> str:
    """Return the trace of a call that the store must refuse."""
    with pytest.raises(StoreRefused) as caught:
        call(store)
    assert "\n" not in str(caught.value)
    return "".join(traceback.format_exception(caught.value))


@every_call
def test_a_wrong_secret(s3_server: S3Server, bucket: str, call: Callable[..., object]) -> None:
    options = s3_server.options(secret_access_key="not-the-secret")
    text = shown(call, open_store(bucket, options))
    assert "check the" in text
    assert "not-the-secret" not in text
    assert KEY_ID not in text


@every_call
def test_a_wrong_key(s3_server: S3Server, bucket: str, call: Callable[..., object]) -> None:
    text = shown(call, open_store(bucket, s3_server.options(access_key_id="nobodys-id")))
    assert "nobodys-id" not in text
    assert KEY not in text


@every_call
def test_a_missing_bucket(s3_server: S3Server, call: Callable[..., object]) -> None:
    text = shown(call, open_store("s3://none/at-all", s3_server.options()))
    assert "create the bucket" in text
    assert "s3://none/at-all" in text


@every_call
def test_a_closed_store_says_so(tmp_path: Path, call: Callable[..., object]) -> None:
    store = open_store(tmp_path.as_uri())
    store.close()
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        call(store)


def test_options_do_not_show_their_key() -> None:
    assert KEY not in repr(StoreOptions(access_key_id=KEY_ID, secret_access_key=KEY))
    assert KEY_ID not in repr(StoreOptions(access_key_id=KEY_ID, secret_access_key=KEY))


def test_the_variables_of_aws_give_what_is_not_set(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    probe(open_store(f"{bucket}/by-variables"))


def test_a_session_of_the_variables_is_not_mixed_with_a_key(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-key")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    probe(open_store(f"{bucket}/by-options", s3_server.options()))


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        (f"s3://id:{HIDDEN}@bucket/a", StoreOptions(), "must not hold a credential"),
        ("s3://b", StoreOptions(endpoint=f"http://id:{HIDDEN}@h"), "must not hold a credential"),
        ("s3:///a", StoreOptions(), "s3://bucket/prefix"),
        ("s3://bucket?hidden=1", StoreOptions(), "s3://bucket/prefix"),
        ("http://host/a", StoreOptions(), "s3://bucket/prefix"),
        ("bucket", StoreOptions(), "s3://bucket/prefix"),
        ("file://host/a", StoreOptions(), "file:///folder"),
        ("file:///no/such/folder", StoreOptions(), "check the folder"),
        ("gs://bucket", StoreOptions(region="here"), "region is for s3:// only"),
        ("s3://bucket", StoreOptions(access_key_id="hidden"), "set both or none"),
    ],
)
def test_wrong_addresses_and_options(url: str, options: StoreOptions, text: str) -> None:
    with pytest.raises(StoreRefused, match=text) as caught:
        open_store(url, options)
    assert "hidden" not in str(caught.value)


def test_only_an_open_store_needs_the_library(tmp_path: Path) -> None:
    code = (
        "import sys, odradek.storage.objects.opening as opening, odradek.storage.objects.probe, "
        "odradek.storage.objects.retrying\n"
        "print('obstore' in sys.modules)\n"
        f"opening.open_store({tmp_path.as_uri()!r})\n"
        "print('obstore' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = StoreOptions(
            endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", region="here",
            access_key_id=KEY_ID, secret_access_key=KEY, request_timeout_ms=100,
        )  # fmt: skip
        for call in CALLS.values():
            with pytest.raises(StoreUnavailable, match="no answer in time"):
                call(open_store("s3://bucket", options))


def test_a_server_is_killed_and_started_again(s3_server: S3Server, bucket: str) -> None:
    plain = open_store(f"{bucket}/killed", s3_server.options())
    plain.create("before", b"1")
    s3_server.kill()
    with pytest.raises(StoreUnavailable, match="connection"):
        plain.read("before")  # perhaps by the connection that there was, which fails
    with pytest.raises(StoreUnavailable, match="no connection"):
        open_store(f"{bucket}/killed", s3_server.options()).read("before")
    refused = threading.Event()

    class Watched:
        """Says when a request was refused, so that the server starts after one."""

        def __getattr__(self, name: str) -> Callable[..., object]:
            def call(*arguments: object) -> object:
                try:
                    return getattr(plain, name)(*arguments)
                except StoreUnavailable:
                    refused.set()
                    raise

            return call

    def start_again() -> None:
        refused.wait(60)
        s3_server.start()

    starting = threading.Thread(target=start_again)
    starting.start()
    try:
        store = RetryingStore(Watched(), 60_000)  # type: ignore[arg-type]
        store.create("after", b"2")
    finally:
        starting.join()
    assert refused.is_set()
    assert [store.read("before"), store.read("after")] == [b"1", b"2"]


class GenericError(Exception):
    """As obstore names it."""


class AlreadyExistsError(Exception):
    """As obstore names it."""


def answer(status: int, code: str) -> str:
    return (
        f"Error performing PUT http://h/b/k - Server returned non-2xx status code: {status} "
        f"Words: <Error><Code>{code}</Code><AWSAccessKeyId>hidden</AWSAccessKeyId></Error>"
    )


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (GenericError(answer(503, "SlowDown")), StoreUnavailable, "SlowDown"),
        (GenericError(answer(500, "InternalError")), StoreUnavailable, "500"),
        (GenericError(answer(429, "TooMany")), StoreUnavailable, "429"),
        (GenericError(answer(400, "RequestTimeout")), StoreUnavailable, "RequestTimeout"),
        (GenericError(answer(400, "ExpiredToken")), StoreRefused, "renew the session's token"),
        (GenericError(answer(403, "RequestTimeTooSkewed")), StoreRefused, "clock"),
        (GenericError(answer(403, "AccessDenied")), StoreRefused, "allow the key"),
        (GenericError(answer(301, "PermanentRedirect")), StoreRefused, "region"),
        (GenericError(answer(501, "NotImplemented")), StoreRefused, "conditional writes"),
        (GenericError(answer(416, "InvalidRange")), ObjectDamaged, "too short"),
        (GenericError("DeleteFailed { code: AccessDenied }"), StoreRefused, "allow the key"),
        (GenericError("broken pipe hidden"), StoreUnavailable, "the connection failed"),
        (AlreadyExistsError(answer(412, "PreconditionFailed")), ObjectExists, "exists"),
        (
            AlreadyExistsError(answer(409, "ConditionalRequestConflict")),
            StoreUnavailable,
            "another request",
        ),
        (FileNotFoundError(answer(404, "NoSuchKey")), ObjectMissing, "no such object"),
        (FileNotFoundError(answer(404, "NoSuchBucket")), StoreRefused, "create the bucket"),
        (FileNotFoundError(answer(404, "Unheard")), StoreRefused, "Unheard"),
        (
            GenericError("Generic LocalFileSystem error: No space left (os error 28)"),
            StoreRefused,
            "ENOSPC",
        ),
        (
            GenericError("Generic LocalFileSystem error: Too many open files (os error 24)"),
            StoreUnavailable,
            "EMFILE",
        ),
    ],
)
def test_answers_are_classified(
    error: Exception, expected: type[ObjectStoreError], text: str
) -> None:
    failure = failure_of("create", "s3://b/k", error)
    assert type(failure) is expected
    assert text in str(failure)
    assert str(failure).startswith("create s3://b/k: ")
    assert "hidden" not in str(failure)
