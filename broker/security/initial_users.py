"""Creates the users of odradek.scram.users, so that somebody can log in to create the others.

Kafka has `kafka-storage format --add-scram` for that. Existing users stay unchanged: a restart
does not undo the changes of an administrator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from odradek.broker.metadata.changes import Changes
from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.salts import new_salt
from odradek.broker.security.sasl.scram_messages import credential_of, salted_password
from odradek.broker.security.scram_users import ScramUsers
from odradek.config.scram_users import InitialUser

logger = logging.getLogger(__name__)


async def add_initial_users(
    wanted: Iterable[InitialUser], users: ScramUsers, changes: Changes
) -> None:
    """Create the users that are missing. Raises MetadataError."""
    missing = [one for one in wanted if users.find(one.mechanism, one.name) is None]
    if not missing:
        return
    loop = asyncio.get_running_loop()
    made = await loop.run_in_executor(None, lambda: [_credential(one) for one in missing])
    pairs = zip(missing, made, strict=True)
    wished = {(one.mechanism, one.name): credential for one, credential in pairs}

    async def add() -> None:
        # Another broker may have created some of them meanwhile.
        absent = {key: one for key, one in wished.items() if users.find(*key) is None}
        if absent:
            await users.change(absent)
        for mechanism, name in absent:
            logger.info("wrote SCRAM credential user=%r mechanism=%s", name, mechanism)

    await changes.run(add)


def _credential(one: InitialUser) -> ScramCredential:
    """Salt a password, which takes milliseconds."""
    salt = one.salt or new_salt()
    salted = one.salted_password
    if salted is None:
        assert one.password is not None, "config/scram_users.py asks for one of the two"
        salted = salted_password(one.mechanism, one.password, salt, one.iterations)
    return credential_of(one.mechanism, salted, salt, one.iterations)
