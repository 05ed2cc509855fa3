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


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is there, and why."""

    reason: str
    api: str
    path: str
    theirs: str = _ANY
    ours: str = _ANY

    def covers(self, found: Difference) -> bool:
        """Tell whether a difference is this one."""
        return bool(
            re.fullmatch(self.api, found.api)
            and re.fullmatch(self.path, found.path)
            and re.fullmatch(self.theirs, found.theirs)
            and re.fullmatch(self.ours, found.ours)
        )


# APIs of Kafka's that are not served, by their keys: transactions, security, the newer groups.
# When one is served, its key goes.
UNSERVED = (
    *(17, 24, 25, 26, 27, 28, 29, 30, 31, 34, 35, 36, 38, 39, 40, 41, 43, 45, 46, 47, 48, 49),
    *(50, 51, 55, 57, 61, 64, 65, 66, 68, 69, 74, 75, 76, 77, 78, 79, 80, 81, 83, 84),
    *(85, 86, 87, 88, 89, 90, 91, 92),
)

KNOWN: tuple[Known, ...] = (
    *(
        Known("Not served.", "ApiVersions", rf"\.api_keys\[{key}\]", ours="absent")
        for key in UNSERVED
    ),
    Known(
        "There is no quorum whose features could be told of.",
        "ApiVersions",
        r"\.(supported|finalized)_features(\[.*\]|_epoch)",
    ),
    # --- sentences ---
    Known(
        "Where Kafka gives only a code, ours says what to change.",
        _ANY,
        r".*\.error_message",
        theirs="None|''",
        ours=_QUOTED,
    ),
    Known(
        "Kafka's sentence of INVALID_REQUEST sends people to its logs; ours says what is wrong.",
        _ANY,
        r".*\.error_message",
        theirs="'This most likely occurs because of a request being malformed .*",
        ours=_QUOTED,
    ),
    Known(
        "There is nothing to cordon here.",
        "CreateTopics",
        r".*\.error_message",
        theirs=r"'Unable to replicate .* registered or some brokers .*",
        ours=r"'Unable to replicate .* registered\.'",
    ),
    Known(
        "All that is wrong with a topic's settings is told at once, in a fixed order.",
        "CreateTopics|(Incremental)?AlterConfigs",
        r".*\.error_message",
        theirs=r"['\"](Invalid value|Unknown topic config name|Invalid config).*",
        ours=r"['\"](Invalid value|Unknown topic config name|Invalid config).*",
    ),
    Known(
        "Ours names the types that there are.",
        "(Incremental)?AlterConfigs",
        r".*\.error_message",
        theirs=r"'Unknown resource type -?\d+'",
        ours=r"'Unknown (resource|operations) type .*",
    ),
    Known(
        "Kafka looks at the operation first, and only then at the topic's name.",
        "IncrementalAlterConfigs",
        r".*\.error_message",
        theirs=r".Can't (APPEND|SUBTRACT) .*",
        ours=r".(Topic name is invalid: |Unknown operations type ).*",
    ),
    Known("Likewise.", "IncrementalAlterConfigs", r".*\.error_code", theirs="40", ours="17|42"),
    # --- settings ---
    Known(
        "Options of Kafka 4.4, which Kafka 4.3 does not have.",
        "CreateTopics|DescribeConfigs",
        r".*\.configs\[(errors\.deadletterqueue\.group\.enable|max\.decompressed\.message\.bytes"
        r"|remote\.copy\.lag\.(bytes|ms))\]",
        theirs="absent",
    ),
    Known(
        "Options have descriptions of their own.",
        "DescribeConfigs",
        r".*\.documentation",
    ),
    Known(
        "Kafka's ConfigHelper forgets what stands in for an option in ms: hours, minutes, days.",
        "DescribeConfigs",
        r".*\[(log\.)?(retention|segment|roll|roll\.jitter|segment\.jitter|flush)\.ms\]"
        r"\.(synonyms\[.*\]|config_source)",
    ),
    Known(
        "Kafka sets it for the cluster by itself, since it keeps eligible leaders (KIP-966).",
        "DescribeConfigs",
        r".*\[min\.insync\.replicas\]\.(synonyms\[.*\]|config_source)",
    ),
    Known(
        "node.id has a default here.",
        "DescribeConfigs",
        r".*\[node\.id\]\.synonyms\[node\.id 5\]",
        theirs="absent",
    ),
    # --- oddities of Kafka's ---
    Known(
        "The largest timestamp is looked for among the records that are there; Kafka finds those "
        "too that DeleteRecords has taken.",
        "ListOffsets",
        r".*\.partitions\[.*\]\.(timestamp|offset|leader_epoch)",
        ours="-1",
    ),
    Known(
        "Kafka tells the batch's largest timestamp, which clients take for the broker's time.",
        "Produce",
        r".*\.log_append_time_ms",
        ours="-1",
        theirs=r"\d+",
    ),
    Known(
        "Kafka looks at the batches first, and only then at whether there are such acks.",
        "Produce",
        r".*\.error_code",
        theirs="87",
        ours="21",
    ),
    Known(
        "A topic of which no partition is asked is answered; Kafka's is left out.",
        "Fetch",
        r"\.responses\[.*\]",
        theirs="absent",
        ours=r"FetchableTopicResponse\(.* partitions=\[\]\)",
    ),
    # Kafka forgets a group whose members are all still to join; ours keeps it until they are late.
    Known("Members to come.", "DeleteGroups", r".*\.error_code", "69", "0"),
    Known("Members to come.", "DescribeGroups", r".*\.group_state", "'Dead'", "'Empty'"),
    Known("Members to come.", "JoinGroup", r"\.error_code", "25", "42"),
    Known(
        "Members to come.",
        "ListGroups",
        r"\.groups\[lonely-.*\]",
        theirs="absent",
        ours=r"ListedGroup\(group_id='lonely-.*', protocol_type='', .*",
    ),
    Known("Members to come.", "LeaveGroup", r".*\.error_code", theirs="25", ours="0"),
    Known("Members to come.", "ListGroups", r"\.groups\[lonely-.*\]", ours="absent"),
    Known(
        "A retention past the end of time cannot be stored; Kafka's sum overflows.",
        "OffsetCommit",
        r".*\.error_code",
        theirs="0",
        ours="-1",
    ),
    Known(
        "Ours looks at the operation first, and only then at whether there is such an option.",
        "IncrementalAlterConfigs",
        r".*\.error_message",
        theirs="'Unknown config name: .*'",
        ours="'Config value (append|subtract) is not allowed .*'",
    ),
    Known(
        "Fetch sessions (KIP-227) are not kept: each request says all.",
        "Fetch",
        r"\.session_id",
        ours="0",
    ),
    Known(
        "Ours compares no epochs (KIP-595): what is a diverging one to Kafka is out of range.",
        "Fetch",
        r".*\.diverging_epoch\.(epoch|end_offset)",
        ours="-1",
    ),
    Known(
        "Likewise: Kafka's answer of a diverging epoch is no error.",
        "Fetch",
        r".*\.partitions\[.*\]\.error_code",
        theirs="0",
        ours="1",
    ),
    Known(
        "Likewise: it tells where the log begins and ends.",
        "Fetch",
        r".*\.partitions\[.*\]\.(high_watermark|last_stable_offset|log_start_offset)",
        ours="-1",
    ),
    # --- frames that no client sends ---
    Known(
        "Kafka closes the connection over a string of more than 32,767 bytes.",
        "DeleteGroups",
        r"\.outcome",
        theirs="no answer, closed",
        ours="an answer of 32785 bytes, open",
    ),
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
