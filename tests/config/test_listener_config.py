"""Where a broker listens and what it tells clients, from the texts of its settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.listeners import Listener, parse_address, parse_host_counts, parse_protocol_map


def broker(
    listeners: str,
    advertised: str | None = None,
    protocols: str = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,SSL:SSL",
    controllers: tuple[str, ...] = (),
) -> BrokerConfig:
    return BrokerConfig(
        listeners=tuple(listeners.split(",")),
        advertised_listeners=None if advertised is None else tuple(advertised.split(",")),
        listener_security_protocol_map=protocols,
        controller_listener_names=controllers,
    )


def refused(config: BrokerConfig) -> str:
    with pytest.raises(ConfigError) as error:
        _ = config.advertised_endpoints
    return str(error.value)


hosts = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str),
    st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True),
    st.just(""),
)


@given(hosts, st.integers(0, 65535))
def test_a_listener_reads_back_from_how_it_prints(host: str, port: int) -> None:
    listener = Listener("OTHER", host, port, "PLAINTEXT")
    assert broker(str(listener)).bound_endpoints == (listener,)


@given(st.text())
def test_any_text_is_a_listener_or_refused(text: str) -> None:
    config = BrokerConfig(listeners=(text,))
    try:
        assert len(config.bound_endpoints) == 1
    except ConfigError as error:
        assert error.problems


def test_names_are_the_same_in_any_case() -> None:
    config = broker("plaintext://h:1,Other://h:2", protocols="plaintext:plaintext,OTHER:Plaintext")
    assert [one.name for one in config.bound_endpoints] == ["PLAINTEXT", "OTHER"]


def test_listeners_are_advertised_where_nothing_else_is_said() -> None:
    config = broker("PLAINTEXT://:0,OTHER://h:2")
    assert config.advertised_endpoints == config.bound_endpoints


def test_advertised_listeners_may_leave_some_out() -> None:
    config = broker("PLAINTEXT://:1,OTHER://:2", "OTHER://example.org:9")
    assert config.advertised_endpoints == (Listener("OTHER", "example.org", 9, "PLAINTEXT"),)


def test_a_controllers_listeners_are_passed_over() -> None:
    config = broker(
        "CONTROLLER://:3,PLAINTEXT://:1",
        "PLAINTEXT://h:1,CONTROLLER://h:3",
        controllers=("CONTROLLER",),
    )
    assert [one.name for one in config.bound_endpoints] == ["PLAINTEXT"]
    assert [one.name for one in config.advertised_endpoints] == ["PLAINTEXT"]
    only = broker("CONTROLLER://:3", controllers=("CONTROLLER",))
    assert "There must be at least one broker advertised listener." in refused(only)


@pytest.mark.parametrize(
    ("listeners", "problem"),
    [
        ("h:1", "Unable to parse h:1 to a broker endpoint"),
        ("PLAINTEXT://h", "Unable to parse PLAINTEXT://h to a broker endpoint"),
        ("PLAINTEXT://h h:1", "Unable to parse PLAINTEXT://h h:1 to a broker endpoint"),
        ("://h:1", "Unable to parse ://h:1 to a broker endpoint"),
        ("PLAINTEXT://h:65536", "the port of PLAINTEXT://h:65536 must be from 0 to 65535"),
        ("PLAINTEXT://h:-1", "must be from 0 to 65535"),
        ("NEW://h:1", "add NEW:PLAINTEXT to listener.security.protocol.map"),
        ("PLAINTEXT://h:1,PLAINTEXT://h:2", "Each listener must have a different name"),
        ("PLAINTEXT://h:1,OTHER://i:1", "Each listener must have a different port"),
        ("PLAINTEXT://127.0.0.1:1,OTHER://127.0.0.2:1", "must have a different port"),
        ("PLAINTEXT://0.0.0.0:9", "set advertised.listeners to an address that clients can reach"),
        ("PLAINTEXT://[::]:9", "PLAINTEXT://localhost:9 for clients on this machine"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(listeners: str, problem: str) -> None:
    assert problem in refused(broker(listeners))


def test_two_listeners_share_a_port_only_as_ipv4_and_ipv6_or_when_it_is_free_to_choose() -> None:
    assert len(broker("PLAINTEXT://127.0.0.1:1,OTHER://[::1]:1").bound_endpoints) == 2
    assert len(broker("PLAINTEXT://h:0,OTHER://h:0").bound_endpoints) == 2


def test_only_what_listens_can_be_advertised() -> None:
    problem = refused(broker("PLAINTEXT://:1", "PLAINTEXT://h:1,OTHER://h:2"))
    assert "Found PLAINTEXT,OTHER. The valid options" in problem


def test_every_bad_listener_is_reported() -> None:
    with pytest.raises(ConfigError) as error:
        _ = broker("x,y,PLAINTEXT://h:1").bound_endpoints
    assert len(error.value.problems) == 2


def test_a_protocol_map_must_be_one() -> None:
    assert parse_protocol_map(" a : plaintext , B:SSL") == {"A": "PLAINTEXT", "B": "SSL"}
    assert parse_protocol_map("") == {}
    for text, problem in (
        ("PLAINTEXT", "write LISTENER:PROTOCOL"),
        ("A:FOO", "Invalid security protocol `FOO`"),
        ("A:SSL,a:PLAINTEXT", "gives A two protocols"),
    ):
        with pytest.raises(ConfigError, match=problem):
            parse_protocol_map(text)


def test_hosts_have_connection_limits_of_their_own() -> None:
    counts = parse_host_counts("127.0.0.1:5, ::1:6,h:0")
    assert counts == {"127.0.0.1": 5, "::1": 6, "h": 0}


def test_the_http_listener_has_an_address_or_is_off() -> None:
    assert parse_address("x", "127.0.0.1:9308") == ("127.0.0.1", 9308)
    assert parse_address("x", "[::1]:0") == ("::1", 0)
    assert parse_address("x", ":80") == ("", 80)
    assert parse_address("x", "") is None
    with pytest.raises(ConfigError, match="Write it as host:port"):
        parse_address("x", "h:99999")
