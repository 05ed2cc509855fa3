"""The settings of shared topics: what they may be, which contradict, and that secrets stay."""

from __future__ import annotations

import pytest

from odradek.config.effective import resolve_apart, resolve_broker, resolve_topic
from odradek.config.errors import ConfigError
from odradek.config.object_store import ObjectStoreConfig
from odradek.config.resolution import Layer, Source
from odradek.config.topic import TopicConfig

SECRET = "s3cret"
ENTRY_MAX = ObjectStoreConfig().odradek_wal_bytes_max
URL, STORAGE = "odradek.object.store.url", "odradek.storage"
ENDPOINT, REGION = "odradek.object.store.endpoint", "odradek.object.store.region"
KEY_ID, KEY = "odradek.object.store.access.key.id", "odradek.object.store.secret.access.key"
PATH_STYLE = "odradek.object.store.path.style"
CATALOG = {
    "odradek.catalog.url": "sqlite:///catalog.db",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
}
STORE = {**CATALOG, URL: "s3://topics/prod"}


def layer(values: dict[str, str]) -> Layer:
    return Layer(Source.STATIC_BROKER, values, {name: f"line of {name}" for name in values})


def problems_of(values: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        resolve_broker([layer(values)])
    assert SECRET not in str(refused.value)
    return refused.value.problems


def test_settings_that_are_not_made_are_left_to_the_environment_of_aws() -> None:
    config = resolve_apart(ObjectStoreConfig, [layer(STORE)])
    assert config.odradek_object_store_url == "s3://topics/prod"
    assert (
        config.odradek_object_store_endpoint,
        config.odradek_object_store_region,
        config.odradek_object_store_path_style,
        config.odradek_object_store_sign_payload,
        config.odradek_object_store_access_key_id,
        config.odradek_object_store_secret_access_key,
    ) == (None,) * 6


@pytest.mark.parametrize(
    "url", ["s3://topics", "s3://topics/a/b", "gs://topics/a", "az://topics", "file:///a", ""]
)
def test_addresses_of_stores(url: str) -> None:
    resolve_broker([layer({**CATALOG, URL: url})])


@pytest.mark.parametrize(
    "url",
    [
        "topics", "http://topics/a", "s3:///a", "s3://", "file://host/a", "file:///", "file:a",
        f"s3://id:{SECRET}@topics", f"s3://topics?key={SECRET}", f"s3://topics#{SECRET}",
        f"s3://[{SECRET}",
    ],
)  # fmt: skip
def test_an_address_of_no_store_is_refused_and_not_quoted(url: str) -> None:
    (problem,) = problems_of({**CATALOG, URL: url})
    assert problem == (
        f"Invalid value for configuration {URL}: write s3://bucket/prefix, gs://bucket/prefix, "
        f"az://container/prefix or file:///folder, without a user or password (line of {URL})"
    )


@pytest.mark.parametrize(
    "endpoint", ["minio:9000", "ftp://minio", "http://", f"http://a:{SECRET}@minio", "http://a:x"]
)
def test_an_endpoint_that_is_none_is_refused_and_not_quoted(endpoint: str) -> None:
    (problem,) = problems_of({**STORE, ENDPOINT: endpoint})
    assert problem == (
        f"Invalid value for configuration {ENDPOINT}: write http://host:port or "
        f"https://host:port, without a user or password (line of {ENDPOINT})"
    )


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {URL: "s3://topics"},
            f"{URL} is set, but shared topics need a catalog: set odradek.catalog.url "
            f"({URL}: line of {URL})",
        ),
        (
            {**STORE, KEY_ID: SECRET},
            f"{KEY_ID} and {KEY} belong together: set both or none ({KEY_ID}: line of {KEY_ID})",
        ),
        (
            {**STORE, KEY: SECRET},
            f"{KEY_ID} and {KEY} belong together: set both or none ({KEY}: line of {KEY})",
        ),
        (
            {**STORE, URL: "gs://topics", REGION: "eu"},
            f"{REGION} is for s3:// only: remove it, or change {URL} "
            f"({REGION}: line of {REGION}; {URL}: line of {URL})",
        ),
        (
            {**STORE, URL: "file:///folder", PATH_STYLE: "false"},
            f"{PATH_STYLE} is for s3:// only: remove it, or change {URL} "
            f"({PATH_STYLE}: line of {PATH_STYLE}; {URL}: line of {URL})",
        ),
        (
            {"odradek.wal.bytes.max": "1000", "odradek.wal.inline.bytes.max": "1001"},
            "odradek.wal.inline.bytes.max must not be greater than odradek.wal.bytes.max "
            "(odradek.wal.inline.bytes.max: line of odradek.wal.inline.bytes.max; "
            "odradek.wal.bytes.max: line of odradek.wal.bytes.max)",
        ),
        (
            {"odradek.wal.pending.bytes.max": f"{2 * ENTRY_MAX - 1}"},
            "odradek.wal.pending.bytes.max must be at least twice odradek.wal.bytes.max: one "
            "entry is filled while another one is uploaded "
            "(odradek.wal.pending.bytes.max: line of odradek.wal.pending.bytes.max)",
        ),
        (
            {**CATALOG, STORAGE: "object"},
            f"{STORAGE}=object needs an object store: set {URL} for each broker "
            f"({STORAGE}: line of {STORAGE})",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    values: dict[str, str], problem: str
) -> None:
    assert problems_of(values) == (problem,)


@pytest.mark.parametrize("name", [ENDPOINT, REGION, PATH_STYLE, KEY_ID, KEY])
def test_settings_of_s3_are_refused_for_other_stores(name: str) -> None:
    value = {ENDPOINT: "http://a", PATH_STYLE: "true"}.get(name, SECRET)
    problems = problems_of({**STORE, URL: "az://topics", name: value})
    assert problems[0].startswith(f"{name} is for s3:// only")


def test_settings_that_agree_are_accepted() -> None:
    resolve_broker([layer({**STORE, KEY_ID: SECRET, KEY: SECRET, STORAGE: "object"})])
    workers = {URL: "s3://topics", "odradek.workers": "2"}  # they have a catalog of their own
    resolve_broker([layer(workers)])


def test_keys_are_not_shown() -> None:
    layers = [layer({**STORE, KEY_ID: SECRET, KEY: SECRET})]
    resolved = resolve_broker(layers)
    assert SECRET not in f"{resolved!r} {resolve_apart(ObjectStoreConfig, layers)!r}"
    assert (resolved.entries[KEY].value, resolved.entries[KEY_ID].value) == (None, None)


def test_a_shared_topic_needs_a_store() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_topic({STORAGE: "object"}, [layer(CATALOG)])
    assert str(refused.value) == (
        f"{STORAGE}=object needs an object store: set {URL} for each broker"
    )
    assert resolve_topic({STORAGE: "object"}, [layer(STORE)]).config.odradek_storage == "object"
    with pytest.raises(ConfigError, match=r"odradek\.storage: String must be one of"):
        resolve_topic({STORAGE: "remote"}, [layer(STORE)])


def test_a_topic_that_exists_does_not_follow_the_brokers_default() -> None:
    layers = [layer({**STORE, STORAGE: "object"})]
    assert resolve_broker(layers).config.odradek_storage == "object"
    assert resolve_topic({}, layers).config == TopicConfig()
    assert STORAGE not in resolve_topic({}, layers).entries  # Kafka's tools see Kafka's options
    assert resolve_topic({STORAGE: "object"}, layers).entries[STORAGE].value == "object"


def test_new_topics_are_shared_where_there_is_a_store() -> None:
    def storage(settings: dict[str, str]) -> str:
        return resolve_broker([layer(settings)]).config.odradek_storage

    assert storage({}) == storage(CATALOG) == storage({**CATALOG, URL: ""}) == "local"
    assert storage(STORE) == "object"
    assert storage({**STORE, STORAGE: "local"}) == "local"
    entry = resolve_broker([layer(STORE)]).entries[STORAGE]
    assert (entry.value, entry.source) == ("object", Source.DEFAULT)
