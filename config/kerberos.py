"""Settings for logins by Kerberos (GSSAPI).

    listener.name.internal.sasl.enabled.mechanisms=GSSAPI
    listener.name.internal.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule \\
        required keyTab="/etc/odradek/kafka.keytab" principal="kafka/broker.example@EXAMPLE.COM";

The JAAS text is Kafka's: useKeyTab and storeKey may stand in it and change nothing. The library
gssapi is needed: pip install odradek[kerberos].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec

from odradek.config.errors import ConfigError
from odradek.config.jaas import LoginModule
from odradek.config.listeners import Listener
from odradek.config.option import option, options
from odradek.config.sasl import GSSAPI, LOGIN_MODULES, SaslConfig, jaas_of, jaas_option
from odradek.config.values import words

LIBRARY = "gssapi"
OPTION = "sasl.kerberos.principal.to.local.rules"
_DEFAULT = ("DEFAULT",)


@options
class KerberosConfig:
    """The rules by which a listener names Kerberos principals."""

    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = option(
        OPTION,
        default=_DEFAULT,
        valid=words(empty=True),
        dynamic="per-broker",
        doc="How Kerberos principals are mapped to the names in ACLs, by the first rule that "
        "applies. DEFAULT takes the first component of principals of the default realm.",
    )
    sasl_kerberos_service_name: str | None = option(
        "sasl.kerberos.service.name",
        default=None,
        dynamic="per-broker",
        doc="The first component of the broker's Kerberos principal, which clients name, too. If "
        "it is set, the principal in sasl.jaas.config must begin with it.",
    )


def kerberos_problems(config: KerberosConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the problems that do not depend on the listeners."""
    if config.sasl_kerberos_principal_to_local_rules == _DEFAULT:
        return
    from odradek.config.kerberos_rules import KerberosRules

    try:
        KerberosRules(config.sasl_kerberos_principal_to_local_rules)
    except ConfigError as error:
        for problem in error.problems:
            yield problem, (OPTION,)


def keytab_of(module: LoginModule | None) -> tuple[str, str]:
    """Return the keytab and the principal of a login module, empty where it has none."""
    given = {} if module is None else module.options
    keytab = re.sub("^file:", "", given.get("keyTab", ""), flags=re.IGNORECASE)
    return keytab, given.get("principal", "")


def kerberos_listener_problems(
    listeners: Iterable[Listener],
    sasl_of: Callable[[str, str], SaslConfig],
    kerberos_of: Callable[[str, str], KerberosConfig],
) -> Iterator[str]:
    """Yield the problems that keep listeners from letting anybody in by Kerberos.

    Both functions return the settings of a listener, or of one of its mechanisms.
    """
    for listener in listeners:
        shared = sasl_of(listener.name, "")
        is_meant = listener.protocol.startswith("SASL_")
        if not is_meant or GSSAPI not in shared.sasl_enabled_mechanisms:
            continue
        name = jaas_option(listener.name, GSSAPI)
        try:
            module = jaas_of(sasl_of(listener.name, GSSAPI), shared, GSSAPI)
        except ConfigError:
            continue  # reported with those of the other mechanisms
        prefix = f"listener {listener.name}: {GSSAPI} is enabled"
        keytab, principal = keytab_of(module)
        service = kerberos_of(listener.name, GSSAPI).sasl_kerberos_service_name
        if not keytab or not principal:
            others = ", ".join(one for one in LOGIN_MODULES if one != GSSAPI)
            yield (
                f"{prefix} and has no keytab: set {name} to {LOGIN_MODULES[GSSAPI]} required "
                'keyTab="/path/of/the.keytab" principal="kafka/host@REALM"; or set '
                f"sasl.enabled.mechanisms to some of {others}"
            )
        elif service is not None and principal.partition("/")[0] != service:
            yield (
                f"{prefix} with sasl.kerberos.service.name={service}, and {name} has the "
                f"principal {principal}: they must name the same service"
            )
        elif find_spec(LIBRARY) is None:
            yield f"{prefix}, which needs a library: pip install odradek[kerberos]"
