"""The settings of authorization: the authorizer, if there is one, and the super users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.config.option import option, options

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@options
class AclConfig:
    """The effective settings of authorization."""

    authorizer_class_name: str = option(
        "authorizer.class.name",
        default="",
        doc=f"Empty: every client may do everything. {STANDARD_AUTHORIZER}: a client may do what "
        "the ACLs allow, by the rules of Kafka's class of that name. There is no other class.",
    )
    super_users: str = option(
        "super.users",
        default="",
        doc="The principals that may do everything, whatever the ACLs say, separated by "
        "semicolons, as in User:ann;User:CN=bob,O=example.",
    )
    allow_everyone_if_no_acl_found: bool = option(
        "allow.everyone.if.no.acl.found",
        default=False,
        doc="Whether every client may do everything to a resource that has no ACL. Otherwise "
        "only super users may.",
    )

    odradek_audit_log: str = option(
        "odradek.audit.log",
        default="",
        doc="A file for the authorizer's denials, which otherwise go to the broker's log. It "
        "also gets the operations allowed while the logger kafka.authorizer.logger is at DEBUG. "
        "When the file is moved away, the broker begins a new one.",
    )

    @property
    def has_authorizer(self) -> bool:
        """Whether there is an authorizer, so that clients need rights."""
        return bool(self.authorizer_class_name)

    @property
    def super_user_names(self) -> frozenset[str]:
        """The super users, each as type:name (StandardAuthorizer.getConfiguredSuperUsers)."""
        words = (word.strip() for word in self.super_users.split(";"))
        return frozenset(word for word in words if word)


def acl_problems(config: AclConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each setting that cannot be used, with the names of its options."""
    name = config.authorizer_class_name
    if name not in ("", STANDARD_AUTHORIZER):
        yield (
            f"authorizer.class.name is {name}, but Java classes cannot be loaded: set it to "
            f"{STANDARD_AUTHORIZER}, which is built in, or remove it",
            ("authorizer.class.name",),
        )
    for one in sorted(config.super_user_names):
        if ":" not in one:
            yield (
                "super.users: expected a string in format principalType:principalName but got "
                f"{one}. Write User:{one}, and ; between several",
                ("super.users",),
            )
