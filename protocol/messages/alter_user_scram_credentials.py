"""AlterUserScramCredentials (51): create, change and remove users of SCRAM (KIP-554)."""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, octets, string


@struct
class ScramCredentialDeletion:
    name: string
    mechanism: int8


@struct
class ScramCredentialUpsertion:
    """A user to create or change. The client salts the password, so that it is never sent."""

    name: string
    mechanism: int8
    iterations: int32
    salt: octets
    salted_password: octets


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Each user may be named once."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult:
    user: string = field()
    error_code: int16 = field()
    error_message: string | None = field()


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """A result for each user."""

    throttle_time_ms: int32 = field()
    results: list[AlterUserScramCredentialsResult] = field()
