"""Rules for the names of certificates: examples of Kafka's own, and what is refused.

tests/broker/test_tls_principals_against_kafka.py holds thousands more against Kafka's class.
"""

from __future__ import annotations

import pytest

from odradek.config.errors import ConfigError
from odradek.config.java_rules import NoRuleApplies
from odradek.config.principal_rules import PrincipalRules

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=JQUser,dc=ORG", "JQUSER"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_counts(name: str, principal: str) -> None:
    assert PrincipalRules(RULES).apply(name) == principal


def test_a_name_that_no_rule_matches_has_no_principal() -> None:
    with pytest.raises(NoRuleApplies, match="applies to CN=b"):
        PrincipalRules("RULE:^CN=a$/a/").apply("CN=b")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("DEFAULT/L", "Invalid rule: `DEFAULT/L`, unmatched substring: `/L`"),
        ("RULE:^CN=(.*?)/$1/,RULE:x", "Invalid rule: `RULE:x`"),
        ("RULE:^CN=(.*$/$1/", "is not understood"),
        ("RULE:[a[bc]]/x/", "is not understood"),
        ("RULE:\\p{Alpha}/x/", "is not understood"),
        ("RULE:^CN=.*$/$1/", "has $1, which is no group"),
        ("RULE:^CN=(.*)$/a$/", "has $, which is no group"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(rules: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PrincipalRules(rules)
    assert problem in str(refused.value)
