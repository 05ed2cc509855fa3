"""The addresses where the broker listens, and the addresses that clients connect to.

    listeners=PLAINTEXT://127.0.0.1:9092,DOCKER://:19092
    advertised.listeners=PLAINTEXT://localhost:9092,DOCKER://broker:19092
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,DOCKER:PLAINTEXT

A listener's name is free; the map gives its protocol. Names in controller.listener.names belong
to Kafka's controller, which does not exist here. They are ignored, so that Kafka's own
server.properties and compose files work unchanged.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from odradek.config.errors import ConfigError, raise_any
from odradek.config.values import INT32_MAX, Value, invalid
from odradek.dataclass import dataclass

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,9})", re.ASCII)
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]+", re.ASCII)
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen at, or to be reached at.

    An empty host is every interface for listening, and the machine's own name for clients. For
    port 0 the operating system chooses a port.
    """

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The option texts from which listeners are read."""

    listeners: Sequence[str]
    advertised: Sequence[str] | None
    protocol_map: str
    controller_names: Sequence[str]


def bound_listeners(settings: ListenerSettings) -> tuple[Listener, ...]:
    """Return the listeners to bind; raise ConfigError when they cannot be read or served."""
    found = _parse_all("listeners", settings.listeners, settings)
    if not found:
        raise ConfigError(
            "There must be at least one broker advertised listener. Perhaps all listeners "
            "appear in controller.listener.names? Add a listener that does not."
        )
    problems: list[str] = []
    for number, one in enumerate(found):
        for other in found[:number]:
            if _clash(one, other):
                problems.append(f"Each listener must have a different port: {other} and {one}")
    raise_any(problems)
    return found


def advertised_listeners(settings: ListenerSettings) -> tuple[Listener, ...]:
    """Return the listeners for clients, by default the bound ones; may raise ConfigError."""
    bound = bound_listeners(settings)
    if settings.advertised is None:
        found = bound
    else:
        found = _parse_all("advertised.listeners", settings.advertised, settings)
    names = [one.name for one in bound]
    strangers = [one.name for one in found if one.name not in names]
    problems = []
    if strangers or not found:
        problems.append(
            "advertised.listeners listener names must be equal to or a subset of the ones "
            f"defined in listeners. Found {','.join(one.name for one in found)}. The valid "
            f"options based on the current configuration are {','.join(names)}"
        )
    if any(_is_wildcard(one.host) for one in found):
        problems.append(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a "
            "routable IP address: set advertised.listeners to an address that clients can reach, "
            f"{found[0].name}://localhost:{found[0].port} for clients on this machine"
        )
    raise_any(problems)
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """Read `NAME:PROTOCOL,...` into protocol by name; raise ConfigError for other text."""
    name = "listener.security.protocol.map"
    found: dict[str, str] = {}
    for listener, protocol in _pairs(name, text, "LISTENER:PROTOCOL"):
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in {name}")
        if found.setdefault(listener.upper(), protocol.upper()) != protocol.upper():
            raise ConfigError(f"{name} gives {listener.upper()} two protocols; keep one")
    return found


def parse_host_counts(text: str) -> dict[str, int]:
    """Read `host:count,...`, hosts as names or addresses; raise ConfigError for other text."""
    name = "max.connections.per.ip.overrides"
    found: dict[str, int] = {}
    for host, count in _pairs(name, text, "host:count"):
        if not _HOST.fullmatch(host):
            raise ConfigError(f"{name} contains invalid addresses : {host}")
        if not re.fullmatch("[0-9]{1,10}", count) or int(count) > INT32_MAX:
            raise invalid(name, text, f"{count} is not a count of connections")
        found[host] = int(count)
    return found


def parse_address(name: str, text: str) -> tuple[str, int] | None:
    """Read `host:port`, or "" for none; raise ConfigError for other text."""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _PORT_MAX:
        raise invalid(name, text, "Write it as host:port, or leave it empty to turn it off")
    return host, int(port)


def check_host_counts(name: str, value: Value) -> None:
    """Check max.connections.per.ip.overrides."""
    parse_host_counts(str(value))


def check_address(name: str, value: Value) -> None:
    """Check an option of the form host:port."""
    parse_address(name, str(value))


def _parse_all(
    option: str, texts: Sequence[str], settings: ListenerSettings
) -> tuple[Listener, ...]:
    protocols = parse_protocol_map(settings.protocol_map)
    controllers = {name.upper() for name in settings.controller_names}
    found: dict[str, Listener] = {}
    problems: list[str] = []
    for text in texts:
        try:
            one = _parse(option, text, protocols, controllers)
        except ConfigError as error:
            problems += error.problems
            continue
        if one is not None and found.setdefault(one.name, one) is not one:
            problems.append(f"Each listener must have a different name, {option}: {text}")
    raise_any(problems)
    return tuple(found.values())


def _parse(
    option: str, text: str, protocols: Mapping[str, str], controllers: set[str]
) -> Listener | None:
    """Read one listener; return None for a controller's."""
    match = _LISTENER.fullmatch(text)
    if match is None or not match[1]:
        raise ConfigError(
            f"Unable to parse {text} to a broker endpoint: write {option} as NAME://host:port"
        )
    name, host, port = match[1].upper(), match[2], int(match[3])
    if name in controllers:
        return None
    if not 0 <= port <= _PORT_MAX:
        raise ConfigError(f"{option}: the port of {text} must be from 0 to {_PORT_MAX}")
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"No security protocol defined for listener {name}: add {name}:PLAINTEXT to "
            "listener.security.protocol.map"
        )
    return Listener(name, host, port, protocol)


def _clash(one: Listener, other: Listener) -> bool:
    """Return whether two listeners need one port; an IPv4 and an IPv6 address may share it."""
    if one.port != other.port or one.port == 0:
        return False
    kinds = {type(_address(one.host)), type(_address(other.host))}
    return kinds != {IPv4Address, IPv6Address}


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_wildcard(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_unspecified


def _pairs(name: str, text: str, shape: str) -> list[tuple[str, str]]:
    pairs = []
    for item in text.split(",") if text.strip() else []:
        key, colon, value = item.rpartition(":")
        if not colon or not key.strip() or not value.strip():
            raise ConfigError(f"Error parsing configuration property '{name}': write {shape},...")
        pairs.append((key.strip(), value.strip()))
    return pairs
