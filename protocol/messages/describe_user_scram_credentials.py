"""DescribeUserScramCredentials (50): the users that can log in by SCRAM, and how (KIP-554)."""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, string


@struct
class UserName:
    name: string


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """The users to describe; null, or an empty list, means all users."""

    users: list[UserName] | None


@struct
class CredentialInfo:
    mechanism: int8
    iterations: int32


@struct
class DescribeUserScramCredentialsResult:
    user: string = field()
    error_code: int16 = field()
    error_message: string | None = field()
    credential_infos: list[CredentialInfo] = field()


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """The users, without any secret."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field()
    results: list[DescribeUserScramCredentialsResult] = field()
