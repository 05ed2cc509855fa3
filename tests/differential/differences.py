"""Where Odradek's answers differ from Kafka's, each with its reason. This list may only shrink.

An entry names what it covers by patterns that match the whole text: of the API, of the place in
the answer (".topics[orders-0].error_code"; ".outcome" for what happens to the connection), of
Kafka's value and of ours, as `repr` has them. `test_wire_against_kafka.py` fails for a difference
that no entry covers, and its long form for an entry that covers nothing any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.differential.answers import Difference

_ANY = r"(?s:.*)"
_QUOTED = r"(?s:['\"].*)"
_SETTINGS = (
    r"['\"](Invalid value|Unknown topic config name|Invalid config|Can't |"
    r"Cannot update these configs dynamically: \[.*,).*"
)


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is there, and why."""

    reason: str
    api: str
    path: str
    theirs: str = _ANY
    ours: str = _ANY

    def covers(self, found: Difference) -> bool:
        """Return whether a difference is this one."""
        return bool(
            re.fullmatch(self.api, found.api)
            and re.fullmatch(self.path, found.path)
            and re.fullmatch(self.theirs, found.theirs)
            and re.fullmatch(self.ours, found.ours)
        )


KNOWN: tuple[Known, ...] = (
    Known(
        "Only levels whose code is there are announced.",
        "ApiVersions",
        r"\.(supported|finalized)_features\[kraft\.version\].*",
    ),
    # --- the controller ---
    Known(
        "Ours counts changes of its database, Kafka's the records of a log.",
        "DescribeQuorum",
        r".*\.(high_watermark|log_end_offset|leader_epoch)",
        theirs=r"\d+",
        ours=r"\d+",
    ),
    Known(
        "The controller listens where the broker does.",
        "DescribeQuorum",
        r"\.nodes\[1\]\.listeners.*",
    ),
    # --- sentences ---
    Known(
        "Where Kafka gives only a code, ours says what to change.",
        "CreatePartitions|DescribeConfigs|IncrementalAlterConfigs|Produce",
        r".*\.error_message",
        theirs="None|''",
        ours=_QUOTED,
    ),
    Known(
        "Kafka's sentence of INVALID_REQUEST sends people to its logs; ours says what is wrong.",
        "FindCoordinator",
        r".*\.error_message",
        theirs="'This most likely occurs because of a request being malformed .*",
        ours=_QUOTED,
    ),
    Known(
        "All that is wrong with settings is told at once, in a fixed order.",
        "CreateTopics|(Incremental)?AlterConfigs",
        r".*\.error_message",
        theirs=_SETTINGS,
        ours=_SETTINGS,
    ),
    # --- settings ---
    Known(
        "Options of Kafka 4.4, which Kafka 4.3 does not have.",
        "CreateTopics|DescribeConfigs",
        r".*\.configs\[(errors\.deadletterqueue\.group\.enable|max\.decompressed\.message\.bytes"
        r"|remote\.copy\.lag\.(bytes|ms))\]",
        theirs="absent",
    ),
    Known(
        "Without cleaner threads nothing is cleaned here; Kafka divides by their number.",
        "(Incremental)?AlterConfigs",
        r".*\.error_(code|message)",
        theirs="42|'/ by zero'",
        ours="0|None",
    ),
    Known(
        "Options have descriptions of their own.",
        "DescribeConfigs",
        r".*\.documentation",
    ),
    Known(
        "node.id has a default here.",
        "DescribeConfigs",
        r".*\[node\.id\]\.synonyms\[node\.id 5\]",
        theirs="absent",
    ),
    Known(
        "Kafka looks in one segment only, though all in it may be below the log's start.",
        "ListOffsets",
        r".*\.partitions\[\d+\]\.(timestamp|offset|leader_epoch)",
        theirs="-1",
        ours=r"\d+",
    ),
    # --- share groups ---
    Known(
        "Kafka never answers when asked for partitions that are not there.",
        "DescribeShareGroupOffsets",
        r"\.outcome",
        theirs="no answer, silent",
        ours="an answer .*, open",
    ),
    # --- frames that no client sends ---
    Known(
        "A text that is not UTF-8 is refused; Kafka puts a replacement character into it.",
        "ApiVersions|Metadata|DeleteGroups",
        r"\.outcome",
        theirs="an answer .*, open",
        ours="no answer, closed",
    ),
)


def known(found: Difference) -> Known | None:
    """Return the entry that covers a difference, None when there is none."""
    return next((one for one in KNOWN if one.covers(found)), None)
