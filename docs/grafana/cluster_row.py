"""The row of the dashboard about brokers that share a catalog."""

from __future__ import annotations

from docs.grafana.panels import BAD, CONTROLLER, HERE, REVISION, by, lines, rate, stat

CLUSTER = [
    stat(
        "Brokers alive",
        f"max({CONTROLLER}_activebrokercount{{{HERE}}})",
        "none",
        "Brokers with a session in the catalog; 1 without a catalog.",
    ),
    stat(
        "Brokers away",
        f"max({CONTROLLER}_fencedbrokercount{{{HERE}}})",
        "none",
        "Brokers that are away with the files of partitions.",
        steps=BAD,
    ),
    stat(
        "Without leader",
        f"max({CONTROLLER}_offlinepartitionscount{{{HERE}}})",
        "none",
        "Partitions that can be neither read nor written: a disk refuses them, or their broker is"
        " away. /api/cluster and /health name them.",
        steps=BAD,
    ),
    stat(
        "Suspended",
        f"sum(odradek_session_suspended{{{HERE}}})",
        "none",
        "Brokers that serve nothing, since their session in the catalog has ended.",
        steps=BAD,
    ),
    stat(
        "Shortest lease",
        f"min(odradek_session_lease_seconds{{{HERE}}})",
        "s",
        "The time that is left of a broker's session. At 0 the broker stops serving.",
        steps=[(None, "red"), (1, "green")],
    ),
    stat(
        "Catalog silent",
        f"max(odradek_catalog_silence_seconds{{{HERE}}})",
        "s",
        "The longest time since the catalog last answered a broker.",
        steps=[(None, "green"), (1, "orange"), (10, "red")],
    ),
    stat(
        "Changes",
        f"max({REVISION}{{{HERE}}})",
        "none",
        "The revision of the metadata, which grows with each change.",
    ),
    stat(
        "Behind",
        f"max({REVISION}{{{HERE}}}) - min({REVISION}{{{HERE}}})",
        "none",
        "Changes that the last of the brokers has not followed yet.",
        steps=BAD,
    ),
    lines(
        "Partitions led",
        [(f"kafka_server_replicamanager_leadercount{{{HERE}}}", "{{instance}}")],
        "none",
        "Partitions that each broker leads, and that are not offline.",
        stacked=True,
    ),
    lines(
        "Catalog",
        [
            (
                "histogram_quantile(0.99, "
                + by("le, kind", rate("odradek_catalog_seconds_bucket"))
                + ")",
                "p99 {{kind}}",
            )
        ],
        "s",
        "The time of transactions in the catalog: changes, extended leases, reads.",
    ),
    lines(
        "Trouble with the catalog",
        [
            (f"sum({rate('odradek_catalog_failures_total')})", "failed"),
            (f"sum({rate('odradek_catalog_conflicts_total')})", "decided again"),
        ],
        "ops",
        "Transactions that failed, and changes that another broker's change had preceded.",
        dashed="failed",
    ),
]
