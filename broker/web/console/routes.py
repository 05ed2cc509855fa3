"""The routes of the page's actions, and of the data that only their views show.

    POST /api/topics/create, alter, empty, delete      (topics.py)
    POST /api/records/produce                          (records.py)
    POST /api/groups/reset, forget, delete             (groups.py)
    POST /api/acls/create, delete                      (acls.py)
    POST /api/users/create, delete                     (users.py)
    POST /api/quotas/alter                             (quotas.py)
    POST /api/transactions/abort                       (transactions.py)
    POST /api/producers/abort                          (producers.py)
    GET  /api/configs                                  (settings.py)
    GET  /api/offsets                                  (ends.py)
    GET  /api/acls, users, quotas, transactions, producers

Every action needs the admin token or a login, and is written to the audit log. A part's module is
imported when somebody first asks for it: most brokers never need it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from odradek.broker.loop.slices import Sliced
from odradek.broker.security.audit import LOGGER
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.requests import (
    ACTOR,
    Parameters,
    answer,
    answer_from_thread,
    client_address,
)

if TYPE_CHECKING:
    from odradek.broker.web.access import Access
    from odradek.broker.web.concurrency import ConcurrencyLimiter
    from odradek.broker.web.console.asking import Asker, ConsoleServices
    from odradek.broker.web.console.plan import Action

Route = Callable[[web.Request], Awaitable[web.StreamResponse]]

# The parts that have actions, and the actions of each.
ACTIONS: Mapping[str, Sequence[str]] = {
    "topics": ("create", "alter", "empty", "delete"),
    "records": ("produce",),
    "groups": ("reset", "forget", "delete"),
    "acls": ("create", "delete"),
    "users": ("create", "delete"),
    "quotas": ("alter",),
    "transactions": ("abort",),
    "producers": ("abort",),
}
ACTION_PATHS: Mapping[str, tuple[str, str]] = {
    f"/api/{part}/{name}": (part, name) for part, names in ACTIONS.items() for name in names
}
# The routes that read, their modules' functions, and their parameters.
VIEWS: Mapping[str, tuple[str, Sequence[str]]] = {
    "/api/configs": ("settings", ("topic", "broker")),
    "/api/offsets": ("ends", ("topic", "at_ms")),
    "/api/acls": ("acls", ()),
    "/api/users": ("users", ()),
    "/api/quotas": ("quotas", ()),
    "/api/transactions": ("transactions", ()),
    "/api/producers": ("producers", ("topic",)),
}
_PACKAGE = "odradek.broker.web.console"

_audit = logging.getLogger(LOGGER)


def add_console_routes(
    app: web.Application, broker: ConsoleServices, access: Access, lists: ConcurrencyLimiter
) -> None:
    """Add the routes of actions to an application."""
    console = Console(broker, access)
    for path, (part, name) in ACTION_PATHS.items():
        app.router.add_post(path, console.act(part, name))
    for path, (module, known) in VIEWS.items():
        app.router.add_get(path, lists.in_turn(console.show(module, known)))


class Console:
    """Serves the actions; the event loop owns it."""

    def __init__(self, broker: ConsoleServices, access: Access) -> None:
        self._broker, self._access = broker, access
        self._asker: Asker | None = None
        self._parts: dict[str, Mapping[str, Action]] = {}

    def act(self, part: str, name: str) -> Route:
        """Return the handler of an action's requests."""

        async def act(request: web.Request) -> web.StreamResponse:
            actor = self._access.require(request)
            Parameters(request, ())
            action = (await self._actions(part))[name]
            return await self._act(request, action, actor)

        return act

    def show(self, module: str, known: Sequence[str]) -> Route:
        """Return the handler of a view's requests."""

        async def show(request: web.Request) -> web.StreamResponse:
            parameters = Parameters(request, known)
            view, asker = await _load(module), await self._ask_by()
            # As with the admin token, unless a person has logged in.
            actor = request.get(ACTOR) or Actor(client_address(request))
            shown = await Sliced(view.show(asker, actor, parameters), self._broker.slices)
            return await answer_from_thread(lambda: shown)

        return show

    async def _act(
        self, request: web.Request, action: Action, actor: Actor
    ) -> web.StreamResponse:
        from odradek.broker.web.console.body import read_body
        from odradek.broker.web.console.plan import DRY_RUN

        body = await read_body(request, (*action.members, DRY_RUN), action.body_bytes_max)
        slices = self._broker.slices
        plan = await Sliced(action.plan(actor, body), slices)
        if body.flag(DRY_RUN):
            shown = {"will": plan.will, "warnings": plan.warnings, "rows": plan.rows}
            return await answer_from_thread(lambda: {DRY_RUN: True, **shown})
        done = await Sliced(plan.carry_out(), slices)
        for sentence in done:
            _audit.info(
                "Principal = %s from host = %s over HTTP: %s", actor, actor.address, sentence
            )
        return answer({DRY_RUN: False, "done": done})

    async def _actions(self, part: str) -> Mapping[str, Action]:
        found = self._parts.get(part)
        if found is None:
            module = await _load(part)
            made: Sequence[Action] = module.make(self._broker, await self._ask_by())
            found = self._parts[part] = {one.name: one for one in made}
        return found

    async def _ask_by(self) -> Asker:
        if self._asker is None:
            self._asker = (await _load("asking")).Asker(self._broker)
        return self._asker


async def _load(name: str) -> Any:
    """Import a module of this package, in a thread where it is the first time."""
    full = f"{_PACKAGE}.{name}"
    if full not in sys.modules:
        await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, full)
    return sys.modules[full]
