"""What a broker is told of authorization: whether there is any, and who is above it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from config.option import option, options

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@options
class AclConfig:
    """The settings of authorization, as they are in force."""

    authorizer_class_name: str = option(
        "authorizer.class.name",
        default="",
        doc=f"Empty: every client may do everything. {STANDARD_AUTHORIZER}: what the ACLs allow, "
        "decided as Kafka's class of that name does. There are no others.",
    )
    super_users: str = option(
        "super.users",
        default="",
        doc="Who may do everything, whatever the ACLs say: principals with ; between them, as "
        "in User:ann;User:CN=bob,O=example.",
    )
    allow_everyone_if_no_acl_found: bool = option(
        "allow.everyone.if.no.acl.found",
        default=False,
        doc="Whether everybody may do everything to a resource that no ACL is about. Else only "
        "super users may.",
    )

    odradek_audit_log: str = option(
        "odradek.audit.log",
        default="",
        doc="A file for what the authorizer has denied, which else goes to the broker's log; "
        "what it has allowed as well once the logger kafka.authorizer.logger is at DEBUG. When "
        "the file is moved away a new one is begun.",
    )

    @property
    def has_authorizer(self) -> bool:
        """Whether clients are asked for rights at all."""
        return bool(self.authorizer_class_name)

    @property
    def super_user_names(self) -> frozenset[str]:
        """The super users, each as type:name (StandardAuthorizer.getConfiguredSuperUsers)."""
        words = (word.strip() for word in self.super_users.split(";"))
        return frozenset(word for word in words if word)


def acl_problems(config: AclConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what cannot be, with the names that it is about."""
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
