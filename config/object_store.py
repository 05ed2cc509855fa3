"""Settings of shared topics: the object store that has their logs, and the WAL in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import SplitResult, urlsplit

from odradek.config.errors import ConfigError
from odradek.config.option import option, options, section
from odradek.config.values import (
    Validator,
    Value,
    at_least,
    between,
    int32,
    int64,
    one_of,
    password,
)

STORAGE, LOCAL, OBJECT = "odradek.storage", "local", "object"
URL = "odradek.object.store.url"
NEEDS_STORE = f"{STORAGE}={OBJECT} needs an object store: set {URL} for each broker"
_STORE = "odradek.object.store."
_KEY_ID, _KEY = f"{_STORE}access.key.id", f"{_STORE}secret.access.key"
_ENTRY, _INLINE = "odradek.wal.bytes.max", "odradek.wal.inline.bytes.max"
_PENDING = "odradek.wal.pending.bytes.max"
_BUCKETS = ("s3", "gs", "az")
_PRICE = between(0, 1_000_000)
_BILL = (
    "for metrics of the store's costs; by default the list price of Amazon S3 Standard in "
    "us-east-1 in dollars (aws.amazon.com/s3/pricing, 2025)"
)


def _check_url(name: str, value: Value) -> None:
    url = _split(value)
    is_bucket = url.scheme in _BUCKETS and bool(url.netloc)
    is_folder = url.scheme == "file" and not url.netloc and url.path.startswith("/")
    is_whole = not (url.query or url.fragment or "@" in url.netloc) and url.path != "/"
    if value and not ((is_bucket or is_folder) and is_whole):
        # The value is not quoted: it may hold a password where none is expected.
        raise ConfigError(
            f"Invalid value for configuration {name}: write s3://bucket/prefix, "
            "gs://bucket/prefix, az://container/prefix or file:///folder, without a user or "
            "password"
        )


def _check_endpoint(name: str, value: Value) -> None:
    url = _split(value)
    try:
        _ = url.port
        is_url = url.scheme in ("http", "https") and bool(url.hostname)
    except ValueError:
        is_url = False
    if value and (not is_url or "@" in url.netloc):
        raise ConfigError(
            f"Invalid value for configuration {name}: write http://host:port or "
            "https://host:port, without a user or password"
        )


def _split(value: Value) -> SplitResult:
    try:
        return urlsplit(str(value).strip())
    except ValueError:
        return urlsplit("")


@section
class SharedTopicOptions:
    """The options by which a topic is shared or not, a section of TopicConfig."""

    odradek_storage: str = option(
        STORAGE,
        default=LOCAL,
        valid=one_of(LOCAL, OBJECT),
        # No fallback: a topic that exists must not move when the broker's default changes.
        broker=(),
        internal=True,
        doc="Where the topic's log is: in the log directories of its brokers (local), or in the "
        f"object store of {URL} (object). A new topic that does not set it gets the broker's "
        f"{STORAGE}. When it is changed, the leaders copy the logs, which they serve meanwhile.",
    )


@options
class ObjectStoreConfig:
    """The effective settings of the object store and of the WAL."""

    odradek_object_store_url: str | None = option(
        URL,
        default=None,
        valid=Validator("s3://…, gs://…, az://…, file:///folder", _check_url),
        doc="The object store that has the logs of shared topics, the same for all brokers of a "
        "cluster: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or "
        "file:///folder for tests. Google and Azure take credentials from their own variables.",
    )
    odradek_object_store_endpoint: str | None = option(
        f"{_STORE}endpoint",
        default=None,
        valid=Validator("http(s)://host:port", _check_endpoint),
        doc="The address of a store that speaks S3's protocol and is not AWS's, by "
        "default that of AWS's variables (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL) or else of its "
        "config files.",
    )
    odradek_object_store_region: str | None = option(
        f"{_STORE}region",
        default=None,
        doc="The region of an s3:// bucket, by default AWS_REGION of the environment, or else "
        "that of AWS's config files.",
    )
    odradek_object_store_path_style: bool | None = option(
        f"{_STORE}path.style",
        default=None,
        doc="Whether the name of an s3:// bucket is in the path of a request, or else in the name "
        "of the host; by default as addressing_style in AWS's config file, or else in the path.",
    )
    odradek_object_store_sign_payload: bool | None = option(
        f"{_STORE}sign.payload",
        default=None,
        doc="Whether requests to an s3:// bucket are signed with the SHA-256 of all their bytes, "
        "which may triple the CPU time of an upload; by default only for an endpoint without "
        "TLS. Set it to false for such an endpoint in a network that is trusted.",
    )
    odradek_object_store_access_key_id: password | None = option(
        _KEY_ID,
        default=None,
        doc="The id of the access key for an s3:// bucket, by default AWS_ACCESS_KEY_ID of the "
        "environment, or else the key of the profile that AWS_PROFILE names in AWS's files "
        "(~/.aws/credentials, ~/.aws/config), or else the role of the machine.",
    )
    odradek_object_store_secret_access_key: password | None = option(
        _KEY,
        default=None,
        doc=f"The secret of the access key that {_KEY_ID} names.",
    )
    odradek_object_store_timeout_ms: int32 = option(
        f"{_STORE}timeout.ms",
        default=30_000,
        valid=at_least(1),
        doc="How long a request to the object store may take, and how long a request that the "
        "store does not answer is repeated.",
    )
    odradek_object_store_hedged_percent: int32 = option(
        f"{_STORE}hedged.percent",
        default=5,
        valid=between(0, 100),
        doc="How many of the reads and small uploads may be sent to the object store a second "
        "time because their answers take unusually long; the first answer counts. With 0 each "
        "waits for its own answer.",
    )
    odradek_wal_bytes_max: int32 = option(
        _ENTRY,
        default=2 * 1024 * 1024,
        valid=at_least(1),
        doc="The size at which an entry of the WAL of shared topics is uploaded without waiting.",
    )
    odradek_wal_linger_ms: int32 = option(
        "odradek.wal.linger.ms",
        default=50,
        valid=at_least(0),
        doc="How long records of shared topics wait for more of them while earlier ones are on "
        "their way to the object store or the catalog. Without earlier ones they do not wait.",
    )
    odradek_wal_inline_bytes_max: int32 = option(
        _INLINE,
        default=64 * 1024,
        valid=at_least(0),
        doc="The largest entry of the WAL that is written into the catalog instead of the object "
        "store, which takes less time.",
    )
    odradek_wal_puts_per_second: int32 = option(
        "odradek.wal.puts.per.second",
        default=5,
        valid=at_least(1),
        doc="How many entries of the WAL a broker uploads each second, since each upload costs "
        "money. Full entries do not wait, nor do those for which all producers wait, if they "
        "have 256 KiB on the average.",
    )
    odradek_wal_slow_bytes_per_second: int32 = option(
        "odradek.wal.slow.bytes.per.second",
        default=512 * 1024,
        valid=at_least(0),
        doc="How many bytes a second of entries whose uploads take longer than most are written "
        "into the catalog instead, so that later entries do not wait for them. With 0 all wait.",
    )
    odradek_wal_commits_per_second: int32 = option(
        "odradek.wal.commits.per.second",
        default=10_000,
        valid=at_least(1),
        doc="How many entries of the WAL all brokers together write into the catalog each second, "
        "as long as they are small; each broker has its share. Records wait for that share.",
    )
    odradek_wal_uploads_max: int32 = option(
        "odradek.wal.uploads.max",
        default=4,
        valid=between(1, 64),
        doc="How many entries of the WAL a broker uploads at a time.",
    )
    odradek_wal_pending_bytes_max: int64 = option(
        _PENDING,
        default=128 * 1024 * 1024,
        valid=at_least(1),
        doc="How many bytes of shared topics a broker may have appended that are not committed "
        "yet. Then producers wait.",
    )
    odradek_wal_checkpoint_bytes: int64 = option(
        "odradek.wal.checkpoint.bytes",
        default=256 * 1024 * 1024,
        valid=at_least(1),
        doc="How many bytes of a broker's shared topics may be in the WAL alone, before it stores "
        "them as segments; with brokers on other hosts, so many for each of these, in partitions "
        "that have less than 1 MiB each. Brokers that take partitions over read the bytes first.",
    )
    odradek_wal_checkpoint_ms: int64 = option(
        "odradek.wal.checkpoint.ms",
        default=600_000,
        valid=at_least(1),
        doc="How long records of a shared topic may be in the WAL alone, before a broker stores "
        "them as segments.",
    )
    odradek_object_delete_delay_ms: int64 = option(
        "odradek.object.delete.delay.ms",
        default=3_600_000,
        valid=at_least(0),
        doc="How long an object that is not needed any more stays in the object store, for "
        "brokers that still read it, and for a restore. Choose it longer than the longest fetch, "
        "and than the age of the oldest copy of the catalog that is to be of use.",
    )
    odradek_cache_bytes: int64 = option(
        "odradek.cache.bytes",
        default=10 * 1024 * 1024 * 1024,
        valid=at_least(64 * 1024 * 1024),
        doc="How much of the disk a broker uses for segments of shared topics that are in the "
        "object store, so that they are not read from there again: segments that the broker "
        "wrote, and parts that it fetched twice.",
    )
    odradek_cache_memory_bytes: int64 = option(
        "odradek.cache.memory.bytes",
        default=64 * 1024 * 1024,
        valid=at_least(0),
        doc="How much memory a broker uses for parts of segments that it has fetched from the "
        "object store once, most of which are read once: a consumer that catches up leaves the "
        "disk alone. 16 MiB for each such consumer are enough. With 0 all goes to the disk.",
    )
    odradek_object_store_price_put: float = option(
        f"{_STORE}price.put",
        default=0.005,
        valid=_PRICE,
        doc=f"The price of 1,000 requests that write or list objects, {_BILL}.",
    )
    odradek_object_store_price_get: float = option(
        f"{_STORE}price.get",
        default=0.0004,
        valid=_PRICE,
        doc=f"The price of 1,000 requests that read, {_BILL}.",
    )
    odradek_object_store_price_gb_month: float = option(
        f"{_STORE}price.gb.month",
        default=0.023,
        valid=_PRICE,
        doc=f"The price of storing 2^30 bytes for a month, {_BILL}.",
    )
    odradek_object_store_price_gb_out: float = option(
        f"{_STORE}price.gb.out",
        default=0.0,
        valid=_PRICE,
        doc=f"The price of reading 2^30 bytes, {_BILL}. It is 0 within a region, where a broker "
        "should be.",
    )


def object_store_problems(config: ObjectStoreConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each contradiction, with the names of its options."""
    if config.odradek_wal_inline_bytes_max > config.odradek_wal_bytes_max:
        yield f"{_INLINE} must not be greater than {_ENTRY}", (_INLINE, _ENTRY)
    if config.odradek_wal_pending_bytes_max < 2 * config.odradek_wal_bytes_max:
        yield (
            f"{_PENDING} must be at least twice {_ENTRY}: one entry is filled while another one "
            "is uploaded",
            (_PENDING, _ENTRY),
        )
    if not config.odradek_object_store_url:
        return
    key_id = config.odradek_object_store_access_key_id
    key = config.odradek_object_store_secret_access_key
    if not config.odradek_object_store_url.startswith("s3:"):
        for_s3 = {
            f"{_STORE}endpoint": config.odradek_object_store_endpoint,
            f"{_STORE}region": config.odradek_object_store_region,
            f"{_STORE}path.style": config.odradek_object_store_path_style,
            f"{_STORE}sign.payload": config.odradek_object_store_sign_payload,
            _KEY_ID: key_id,
            _KEY: key,
        }
        for name, value in for_s3.items():
            if value not in (None, ""):
                yield f"{name} is for s3:// only: remove it, or change {URL}", (name, URL)
    elif bool(key_id) != bool(key):
        yield f"{_KEY_ID} and {_KEY} belong together: set both or none", (_KEY_ID, _KEY)
