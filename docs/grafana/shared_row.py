"""The row of the dashboard about shared topics: the object store, the WAL, the cache, costs."""

from __future__ import annotations

from docs.grafana.panels import BAD, HERE, by, lines, rate, stat

STORE = "odradek_object_store"
STORED = f"{STORE}_stored_bytes"
PER_MONTH = f"{STORE}_dollars_per_month"
READS = rate("odradek_cache_reads_total")
HITS = rate("odradek_cache_reads_total", f'{HERE},result="hit"')


def requests(method: str) -> str:
    return by("purpose", rate(f"{STORE}_requests_total", f'{HERE},method="{method}"'))


def wal_quantile(share: float) -> str:
    return f"histogram_quantile({share}, {by('le, step', rate('odradek_wal_seconds_bucket'))})"


SHARED = [
    stat(
        "Bucket fails",
        f"max({STORE}_failing_seconds{{{HERE}}})",
        "s",
        "The longest time for which the object store has not answered a broker.",
        steps=[(None, "green"), (1, "orange"), (30, "red")],
    ),
    stat(
        "Obstacles",
        f"sum(odradek_shared_obstacles{{{HERE}}})",
        "none",
        "Brokers that cannot commit records, store logs or free the WAL; /health has the causes.",
        steps=BAD,
    ),
    stat(
        "Pending",
        f"sum(odradek_wal_pending_bytes{{{HERE}}})",
        "bytes",
        "Bytes that were appended and are not committed yet. Producers wait for their commit.",
    ),
    stat(
        "Only in the WAL",
        f"sum(odradek_wal_unstored_bytes{{{HERE}}})",
        "bytes",
        "Committed bytes that are not in segments yet. A takeover reads them first.",
    ),
    stat(
        "Cache hits",
        f"sum({HITS}) / sum({READS})",
        "percentunit",
        "The share of reads of stored segments that the disk served as a whole.",
    ),
    stat(
        "Stored",
        f"sum({STORED}{{{HERE}}})",
        "bytes",
        "Bytes in the object store, with the WAL and garbage. One broker of a cluster knows them.",
    ),
    stat(
        "Garbage",
        f'sum({STORED}{{{HERE},kind="garbage"}})',
        "bytes",
        "Bytes that nothing needs any more, deleted after odradek.object.delete.delay.ms.",
    ),
    stat(
        "Bill of a month",
        f"sum({PER_MONTH}{{{HERE}}})",
        "currencyUSD",
        "Costs at the pace of the last five minutes, by the prices of odradek.object.store.price.",
    ),
    lines(
        "Requests to the bucket",
        [(requests("PUT"), "PUT {{purpose}}"), (requests("GET"), "GET {{purpose}}")],
        "reqps",
        "PUTs cost most: new entries of the WAL, and segments. Reads are those of consumers, the"
        " cleaner and takeovers.",
    ),
    lines(
        "Trouble with the bucket",
        [
            (f"sum({rate(f'{STORE}_retries_total')})", "sent again"),
            (by("purpose, error", rate(f"{STORE}_failures_total")), "{{purpose}} {{error}}"),
        ],
        "reqps",
        "Requests that were sent again, and those that failed, by the kind of error.",
    ),
    lines(
        "Commits",
        [(wal_quantile(0.5), "p50 {{step}}"), (wal_quantile(0.99), "p99 {{step}}")],
        "s",
        "The time from an entry's sealing to its commit, and that of the commit in the catalog"
        " alone. Producers with acks=all wait for the first one.",
    ),
    lines(
        "Size of entries",
        [
            (
                f"{by('kind', rate('odradek_wal_bytes_total'))}"
                f" / {by('kind', rate('odradek_wal_entries_total'))}",
                "{{kind}}",
            )
        ],
        "bytes",
        "The average size of the WAL's entries: in the catalog as a whole (inline), or objects.",
    ),
    lines(
        "Only in the WAL",
        [
            (f"odradek_wal_unstored_bytes{{{HERE}}}", "{{instance}}"),
            (f"max(odradek_wal_unstored_max_bytes{{{HERE}}})", "bound"),
        ],
        "bytes",
        "Committed bytes of each broker that are not in segments yet, and"
        " odradek.wal.checkpoint.bytes for each broker on another host.",
        dashed="bound",
    ),
    lines(
        "Pending",
        [
            (f"odradek_wal_pending_bytes{{{HERE}}}", "{{instance}}"),
            (f"max(odradek_wal_pending_max_bytes{{{HERE}}})", "producers wait"),
        ],
        "bytes",
        "Bytes that are not committed yet, and odradek.wal.pending.bytes.max.",
        dashed="producers wait",
    ),
    lines(
        "Cache",
        [
            (f"odradek_cache_bytes{{{HERE}}}", "{{instance}}"),
            (f"max(odradek_cache_max_bytes{{{HERE}}})", "bound"),
        ],
        "bytes",
        "Bytes of stored segments that the disk has as well, and odradek.cache.bytes.",
        dashed="bound",
    ),
    lines(
        "Stored",
        [(by("kind", f"{STORED}{{{HERE}}}"), "{{kind}}")],
        "bytes",
        "Bytes in the object store: segments, the WAL, and garbage that is still to be deleted.",
        stacked=True,
    ),
    lines(
        "Bill of a month",
        [(by("kind", f"{PER_MONTH}{{{HERE}}}"), "{{kind}}")],
        "currencyUSD",
        "Costs at the pace of the last five minutes: requests that write and read, bytes read, and"
        " bytes stored.",
        stacked=True,
    ),
]
