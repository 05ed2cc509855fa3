"""Kafka's command line tools print of us what they print of Kafka.

Both brokers get the same commands in the same order: tool_scripts/*.txt, a command a line. What
a command prints is compared line by line, without what differs by nature (NATURAL), and but for
KNOWN. Besides the tools (tools.py) a script has

    start NAME client ...  start a client that runs on
    await NAME TEXT        wait until it has printed the text
    stop NAME              end it, and compare what it has printed
    write FILE TEXT        write a file, with \\n between its lines
    restart                stop the brokers, and start them again
    kill                   kill them, and start them again

{dir} is where files are, {id:TOPIC} is the id that a topic was last described with.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs
from odradek.broker.api_table import BY_KEY
from odradek.config.acl import STANDARD_AUTHORIZER
from tests.compat.tools import CLIENTS, Client, Printed, Tools
from tests.support.forking import ForkedOdradek
from tests.support.waiting import last_answer

SCRIPTS = Path(__file__).with_name("tool_scripts")
# A minute of `make test`; the others run in `make interop`.
SHORT = ("groups",)
# These need brokers with an authorizer.
WITH_ACLS = ("acls",)
LONG = sorted({path.stem for path in SCRIPTS.glob("*.txt")} - {*SHORT, *WITH_ACLS})
SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "5",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
}
AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
# Kafka's broker hears of what its controller has done a little later. What changes ACLs lists
# them, too, and may be said twice.
READING = re.compile(r"--(describe|list)\b|^(offsets|versions|acls)\b|\bdescribe\b")

# Times, ids, addresses, and traces of the tools' own code.
NATURAL = (
    (r"(?m)^\tat .*\n?|^\t\.\.\. \d+ more\n?", ""),
    (r"adminclient-\d+", "adminclient"),
    (r"\b\d{13}\b", "TIME"),
    (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\]", "[TIME]"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"(?<= )[\w-]{22}(?= +/127)", "UUID"),
    (r"(?i)(Topic ?Id|Cluster ?Id): *\S+", r"\1 ID"),
    (r"127\.0\.0\.1(:| +)\d+", "ADDRESS"),
    (r"\d+ ms ago", "AGO"),
    (r"/\S+/(ours|theirs)/data", "DATA"),
    (r"[ \t]+", " "),
)

LATER = r"errors\.deadletterqueue\.group\.enable|max\.decompressed\.\S+|remote\.copy\.lag\.\w+"
OWN = r"""
    (advertised\.|metrics\.|inter\.broker\.)?listener(s|\.\S+)? | (broker|node)\.id
    | process\.roles | controller\.(listener\.names|quorum\.voters) | log\.dirs?
    | (offsets|share|transaction)\.\S+\.(factor|isr) | log\.cleaner\.verify | log\.flush\.acks\.all
    | odradek\.\S+ | log\.remote\.copy\.lag\.\w+ | errors\.deadletterqueue\.\S+
    | group\.streams\.(assignors|rack\.\S+|topology\.\S+) | metric\.reporters
    | principal\.builder\.class | remote\.log\.metadata\.manager\.class\.name
    | sasl\.oauthbearer\.(allow\.unverified|jwt)\.\S+
    | super\.users | allow\.everyone\.if\.no\.acl\.found
"""
SYNONYMS = r"(retention|roll|roll\.jitter)\.hours|flush\.scheduler\.interval\.ms"
# What differs on purpose; it may only shrink. Commands by their beginning, and what is left out
# of what they print.
KNOWN: tuple[tuple[str, str], ...] = (
    # Offsets and epochs of the metadata log, and where the controller listens.
    ("quorum", r"(?m)(Epoch|HighWatermark): .*|^1 A+ \d+|(PLAINTEXT|CONTROLLER)(?=://)"),
    ("features", r"Epoch: \d+"),
    # Levels of features whose code is not here.
    ("features", r"(?m)^Feature: kraft\.version.*\n"),
    # APIs that are not served yet.
    ("versions", rf"(?m)^ \w+\((?!(?:{'|'.join(map(str, BY_KEY))})\)).*\n"),
    # Options of Kafka after 4.3, and the synonyms with which Odradek tells all of what it goes by.
    ("configs", rf"(?m)^ ({LATER})=.*\n"),
    ("configs", rf"(, )?DEFAULT_CONFIG:log\.({SYNONYMS})=\w+"),
    # Where the brokers listen, what they are, and options that only one of them knows.
    ("configs --describe --entity-type brokers", rf"(?mx)^[ ] ({OWN}) = .*\n"),
    # Another default: a broker takes over within seconds (tests/config/kafka_differences.py).
    (
        "configs --describe --entity-type brokers",
        r"(?m)^ broker\.(heartbeat\.interval|session\.timeout)\.ms=.*\n",
    ),
    # How long a transaction has been open, and when and in how many batches it was written.
    ("transactions", r"(?<=TIME )\d+(?= )"),
    # How the producer filled its batches.
    ("log-dirs", r'(?<="size": )[1-9]\d*'),
    # How often the clients committed.
    ("offsets", r"(?<=\b__consumer_offsets:\d:)[1-9]\d*"),
)


@dataclass(slots=True)
class Peer:
    """One broker, and what the script has to know of it."""

    process: OdradekProcess | KafkaProcess
    ids: dict[str, str] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)


@dataclass(slots=True)
class Stage:
    """Both brokers, and the tools; owned by the fixture."""

    directory: Path
    tools: Tools
    peers: tuple[Peer, Peer]
    numbers: count[int] = field(default_factory=count)

    def run(self, words: list[str]) -> list[Printed]:
        """Run a command against both brokers at once."""
        tool, *arguments = words
        if tool in CLIENTS:
            begun = [self.start(peer, words) for peer in self.peers]
            return [client.end() for client in begun]
        numbers = []
        for peer in self.peers:
            filled = self._filled(peer, arguments)
            if tool == "cluster":  # the only one that wants its verb first
                filled = [filled[2], *filled[:2], *filled[3:]]
            numbers.append(self.tools.send(tool, filled))
        printed = [self.tools.answer(number) for number in numbers]
        for peer, one in zip(self.peers, printed, strict=True):
            assert "Failed to create new" not in one.out + one.err, one
            peer.ids.update(re.findall(r"Topic: (\S+)\s+TopicId: (\S+)", one.out))
        return printed

    def start(self, peer: Peer, words: list[str]) -> Client:
        """Start a client of a broker."""
        tool, *arguments = words
        printed = self.directory / f"printed-{next(self.numbers)}"
        return Client.start(tool, self._filled(peer, arguments), printed)

    def _filled(self, peer: Peer, words: list[str]) -> list[str]:
        ids = {f"{{id:{topic}}}": topic_id for topic, topic_id in peer.ids.items()}
        known = {"{dir}": str(self.directory), **ids}
        filled = ["--bootstrap-server", peer.process.bootstrap]
        for word in words:
            for name, value in known.items():
                word = word.replace(name, value)
            filled.append(word)
        return filled


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from staged(tmp_path_factory.mktemp("tools"), SETTINGS)


@pytest.fixture
def stage_with_acls(tmp_path: Path) -> Iterator[Stage]:
    yield from staged(tmp_path, SETTINGS | AUTHORIZER)


def staged(directory: Path, settings: Mapping[str, str]) -> Iterator[Stage]:
    """Start both brokers with settings, and stop them at the end."""
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    ours = ForkedOdradek(directory / "ours", settings)
    theirs = KafkaProcess(directory / "theirs", settings)
    tools = Tools()
    peers = Peer(ours), Peer(theirs)
    try:
        ours.start()
        theirs.start()
        yield Stage(directory, tools, peers)
    finally:
        for client in (client for peer in peers for client in peer.clients.values()):
            client.stop()
        tools.close()
        ours.stop()
        theirs.stop()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", SHORT)
def test_the_tools_print_the_same(stage: Stage, script: str) -> None:
    assert not (found := differences(stage, script)), "\n".join(found)


@pytest.mark.kafka
@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", LONG)
def test_all_tools_print_the_same(stage: Stage, script: str) -> None:
    assert not (found := differences(stage, script)), "\n".join(found)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", WITH_ACLS)
def test_the_tools_print_the_same_of_acls(stage_with_acls: Stage, script: str) -> None:
    assert not (found := differences(stage_with_acls, script)), "\n".join(found)


def differences(stage: Stage, script: str) -> list[str]:
    """Run a script; return what the tools print differently, command by command."""
    found = []
    for line in (SCRIPTS / f"{script}.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            found += _play(stage, line)
    return found


def _play(stage: Stage, line: str) -> list[str]:
    verb, _, rest = line.partition(" ")
    name, _, more = rest.partition(" ")
    match verb:
        case "write":
            (stage.directory / name).write_text(more.replace("\\n", "\n") + "\n")
        case "restart" | "kill":
            for peer in stage.peers:
                if verb == "kill":
                    peer.process.kill()
                else:
                    peer.process.stop()
                peer.process.start()
        case "start":
            for peer in stage.peers:
                peer.clients[name] = stage.start(peer, shlex.split(more))
        case "await":
            for peer in stage.peers:
                peer.clients[name].wait_for(more)
        case "stop":
            return _compare(line, [peer.clients.pop(name).stop() for peer in stage.peers])
        case _:
            return last_answer(
                lambda: _compare(line, stage.run(shlex.split(line))),
                lambda found: not found or not READING.search(line),
            )
    return []


def _compare(line: str, printed: list[Printed]) -> list[str]:
    ours, theirs = (
        [f"exit {one.status}", *_normal(line, one.out), *_normal(line, one.err)] for one in printed
    )
    if ours == theirs:
        return []
    only_ours = [f"    - {one}" for one in ours if one not in theirs]
    only_theirs = [f"    + {one}" for one in theirs if one not in ours]
    return [line, *(only_ours + only_theirs or [f"    order: {ours} / {theirs}"])]


def _normal(line: str, text: str) -> list[str]:
    """Return the lines of a text, without what differs by nature or on purpose."""
    if '{"timestamp":' in text:
        return _events(text)
    if line.startswith("log-dirs"):
        text = re.sub(r"(?m)^\{.*", lambda found: _laid_out(found[0]), text)
    text = re.sub(r"(?m)(?<=Configs: ).+$", lambda found: _sorted_settings(found[0]), text)
    for pattern, replacement in NATURAL:
        text = re.sub(pattern, replacement, text)
    for command, pattern in KNOWN:
        if line.startswith(command):
            text = re.sub(pattern, "", text)
    lines = [one.strip() for one in text.splitlines() if one.strip()]
    if line.startswith("acls"):  # the tool takes them from hash sets
        return sorted(lines)
    # What is logged of several partitions comes in any order.
    logged = sorted(one for one in lines if one.startswith("[TIME]"))
    return [*logged, *(one for one in lines if not one.startswith("[TIME]"))]


def _sorted_settings(text: str) -> str:
    """Return a topic's settings by name: the tool takes them from a hash map."""
    return ",".join(sorted(re.split(r",(?=[a-z.]+=)", text)))


def _laid_out(text: str) -> str:
    """Return JSON with its lists in one order, a value a line."""

    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: ordered(one) for key, one in value.items()}
        if isinstance(value, list):
            return sorted(map(ordered, value), key=json.dumps)
        return value

    return json.dumps(ordered(json.loads(text)), indent=1)


def _events(text: str) -> list[str]:
    """Sum up the JSON of the verifiable clients: which events, and how far they came.

    How many records come at once, and how often partitions are assigned, depends on timing.
    """
    facts: set[str] = set()
    ends: dict[str, int] = {}
    for line in text.splitlines():
        if not line.startswith("{"):
            facts.add(line)
            continue
        event = json.loads(line)
        facts.add(f"event {event['name']}")
        for one in (*event.get("offsets", ()), *event.get("partitions", ())):
            place = f"{event['name']} {one['topic']} {one['partition']}"
            at = one.get("offset", one.get("maxOffset", 0))
            ends[place] = max(at, ends.get(place, 0))
        facts.update(f"{key} {event[key]}" for key in ("sent", "acked") if key in event)
        if event["name"] == "producer_send_success":
            facts.add(" ".join(str(event[key]) for key in ("partition", "offset", "key", "value")))
    return sorted(facts | {f"{place} {at}" for place, at in ends.items()})
