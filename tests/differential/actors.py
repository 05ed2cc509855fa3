"""Clients that both brokers see alike: each has a connection of its own to either.

Whoever waits for others can ask nothing else meanwhile: a request is begun, and finished when
its answers are due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from odradek.protocol.frames import encode_request
from tests.differential.answers import Difference
from tests.differential.play import Play
from tests.differential.wire import CLIENT_ID, Peer, read_answer
from tests.support.waiting import last_answer

Found = tuple[str, Difference]


@dataclass
class Actor:
    """A client: its connection to each broker, and what it was told."""

    number: int
    connections: tuple[Peer, Peer]
    instance: str | None = None
    member_id: str = ""
    generation_id: int = -1
    protocols: tuple[str, ...] = ("range", "sticky")
    session_ms: int = 1_800_000  # no session ends meanwhile
    asked: tuple[Any, int] | None = None  # what waits for an answer, and its version

    def first(self, static_since: int) -> int:
        """Return the first version in which it can say who it is."""
        return 0 if self.instance is None else static_since

    def close(self) -> None:
        """Close its connections."""
        for peer in self.connections:
            peer.close()


class Stage:
    """Where actors ask: both brokers get each request, and their answers are compared."""

    def __init__(self, play: Play) -> None:
        self.play = play

    def actor(self, number: int, instance: str | None = None, **options: Any) -> Actor:
        """Let an actor come."""
        connections = Peer(self.play.ours.port), Peer(self.play.theirs.port)
        return Actor(number, connections, instance, **options)

    def ask(self, actor: Actor, request: Any, version: int, *learned: str) -> Iterator[Found]:
        """Ask, and compare the answers."""
        self.begin(actor, request, version)
        yield from self.finish(actor, *learned)

    def begin(self, actor: Actor, request: Any, version: int) -> None:
        """Ask; the answers are waited for later."""
        actor.asked = request, version
        for peer, made in self.both(actor, request):
            peer.send(encode_request(made, version, 1, CLIENT_ID))

    def finish(self, actor: Actor, *learned: str) -> Iterator[Found]:
        """Compare the answers, and take up what an actor learns of ours."""
        assert actor.asked is not None
        request, version = actor.asked
        ours, theirs = (peer.receive() for peer in actor.connections)
        api = type(request).__name__.removesuffix("Request")
        for one in self.play.pairs.differences(api, version, ours, theirs):
            yield f"{request}", one
        assert ours.answer is not None, f"{actor} {api} {version}: {ours}, {theirs}"
        answer = read_answer(api, version, ours.answer)
        for name in learned:
            setattr(actor, name, getattr(answer, name))

    def wait_until(
        self, actor: Actor, request: Any, version: int, is_so: Callable[[Any], bool]
    ) -> None:
        """Ask both brokers until what they say is so."""
        for peer, made in self.both(actor, request):
            answer = last_answer(partial(peer.ask, made, version), is_so)
            assert is_so(answer), f"still {answer}"

    def both(self, actor: Actor, request: Any) -> Iterator[tuple[Peer, Any]]:
        """Return each connection with the request as it goes there."""
        made = request, self.play.pairs.for_kafka(request)
        return zip(actor.connections, made, strict=True)
