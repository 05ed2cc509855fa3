"""Values that are kept elsewhere: `${file:/run/secrets/broker:token}`, `${env:TOKEN}`.

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.env.param.allowlist.pattern=BROKER_.*
    odradek.admin.token=${file:/run/secrets/broker:token}

The names, classes and parameters are Kafka's (KIP-297, KIP-421, KIP-887). Only the settings that a
broker is started with are resolved: a client's setting never reads a file of this machine.

Kafka would use the text `${…}` itself for a missing value: a password that anybody could guess.
This module raises an error instead. No message holds a value.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from odradek.config.errors import ConfigError, raise_any
from odradek.config.option import option, options
from odradek.config.properties import Settings, from_properties
from odradek.config.resolution import Layer, Source, resolve
from odradek.config.values import words

OPTION = "config.providers"
PREFIX = OPTION + "."
_PACKAGE = "org.apache.kafka.common.config.provider."
_FILE, _ENVIRONMENT, _DIRECTORY = (
    f"{_PACKAGE}{one}ConfigProvider" for one in ("File", "EnvVar", "Directory")
)
# Their names in Kafka's documentation; nobody means a text with such a name literally.
_USUAL = {"file": _FILE, "env": _ENVIRONMENT, "directory": _DIRECTORY}
# ConfigTransformer.DEFAULT_PATTERN: provider, path, key.
_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_ALLOWED_PATHS, _ALLOWLIST = "allowed.paths", "allowlist.pattern"

# Returns the value of a key at a path; raises ConfigError that names the missing part.
Provider = Callable[[str, str], str]


@options
class ProvidersConfig:
    """The sources of values that are kept elsewhere."""

    config_providers: tuple[str, ...] = option(
        OPTION,
        default=(),
        valid=words(empty=True),
        doc="Names of the providers of ${name:path:key} in the settings that a broker is started "
        "with. config.providers.NAME.class is the class of each: Kafka's FileConfigProvider, "
        "EnvVarConfigProvider or DirectoryConfigProvider. Clients can set neither this nor such "
        "a reference, since with it they could read the files of the broker's machine.",
    )


def provide(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Replace references by their values; raise ConfigError for all that have none.

    The origin of a setting that had a reference names it; errors do not quote a value with such
    an origin (config.resolution).
    """
    providers = _make_all(settings, environment)
    problems: list[str] = []
    resolved: Settings = {}
    for name, (text, origin) in settings.items():
        if is_of_providers(name) or "${" not in text:
            resolved[name] = text, origin
            continue
        try:
            value, references = _replaced(text, providers)
        except ConfigError as error:
            problems += (f"{name}: {problem} ({origin})" for problem in error.problems)
            continue
        source = f"{origin}, {' '.join(references)}" if references else origin
        resolved[name] = value, source
    raise_any(problems)
    return resolved


def is_of_providers(name: str) -> bool:
    """Return whether a setting is config.providers, or belongs to a provider."""
    return name == OPTION or name.startswith(PREFIX)


def has_reference(text: str) -> bool:
    """Return whether a text refers to a value that is kept elsewhere."""
    return _REFERENCE.search(text) is not None


def referred_files(origin: str) -> Iterator[Path]:
    """Yield the files that the references in a setting's origin lead to."""
    for found in _REFERENCE.finditer(origin):
        path = Path(found[2] or "")
        yield from (one for one in (path, path / found[3]) if found[2] and one.is_file())


def _replaced(text: str, providers: Mapping[str, Provider]) -> tuple[str, list[str]]:
    references: list[str] = []
    problems: list[str] = []

    def value(found: re.Match[str]) -> str:
        name, path, key = found[1], found[2] or "", found[3]
        provider = providers.get(name)
        if provider is None:
            if name in _USUAL:
                problems.append(_unnamed(name))
            return found[0]
        references.append(found[0])
        try:
            return provider(path, key)
        except ConfigError as error:
            problems.extend(f"{found[0]}: {problem}" for problem in error.problems)
            return ""

    result = _REFERENCE.sub(value, text)
    raise_any(problems)
    return result, references


def _unnamed(name: str) -> str:
    return (
        f"it refers to ${{{name}:…}}, and {OPTION} does not name {name}: set {OPTION}={name} and "
        f"{PREFIX}{name}.class={_USUAL[name]}"
    )


def _make_all(settings: Settings, environment: Mapping[str, str]) -> dict[str, Provider]:
    text, origin = settings.get(OPTION, ("", ""))
    layer = Layer(Source.STATIC_BROKER, {OPTION: text}, {OPTION: origin})
    names = resolve(ProvidersConfig, [layer]).config.config_providers
    providers: dict[str, Provider] = {}
    problems: list[str] = []
    for name in filter(None, names):
        try:
            providers[name] = _make(name, settings, environment)
        except ConfigError as error:
            problems += (f"{problem} ({origin})" for problem in error.problems)
    raise_any(problems)
    return providers


def _make(name: str, settings: Settings, environment: Mapping[str, str]) -> Provider:
    cls = f"{PREFIX}{name}.class"
    made = settings.get(cls, ("", ""))[0].strip()
    known = ", ".join(_USUAL.values())
    if not made:
        raise ConfigError(f"{OPTION} names {name}: set {cls} to one of {known}")

    def parameter(option: str) -> str | None:
        found = settings.get(f"{PREFIX}{name}.param.{option}")
        return None if found is None else found[0]

    if made == _ENVIRONMENT:
        pattern = parameter(_ALLOWLIST)
        return _of_environment(environment, f"{PREFIX}{name}.param.{_ALLOWLIST}", pattern)
    if made in (_FILE, _DIRECTORY):
        allowed = _allowed(f"{PREFIX}{name}.param.{_ALLOWED_PATHS}", parameter(_ALLOWED_PATHS))
        return _of_files(allowed) if made == _FILE else _of_directories(allowed)
    raise ConfigError(f"{cls}: {made} is not supported: set it to one of {known}")


def _of_environment(
    environment: Mapping[str, str], option: str, pattern: str | None
) -> Provider:
    """Provide environment variables (EnvVarConfigProvider)."""
    try:
        allowed = re.compile(".*" if pattern is None else pattern)
    except re.error as error:
        raise ConfigError(f"{option} is not a regular expression: {error}") from error

    def get(path: str, key: str) -> str:
        if path:
            raise ConfigError(f"an environment variable has no path: write ${{…:{key}}}")
        if not allowed.fullmatch(key):
            raise ConfigError(f"{option} does not allow {key}: change one of the two")
        if key not in environment:
            raise ConfigError(f"there is no environment variable {key}: set it")
        return environment[key]

    return get


def _of_files(allowed: Callable[[str], Path]) -> Provider:
    """Provide the values of properties files (FileConfigProvider)."""
    read: dict[Path, Settings] = {}

    def get(path: str, key: str) -> str:
        file = allowed(path)
        if file not in read:
            read[file] = from_properties(_text(file), str(file))
        if key not in read[file]:
            raise ConfigError(f"{file} has no key {key}: add it there")
        return read[file][key][0]

    return get


def _of_directories(allowed: Callable[[str], Path]) -> Provider:
    """Provide the contents of a directory's files (DirectoryConfigProvider)."""

    def get(path: str, key: str) -> str:
        directory = allowed(path)
        # The key is a name in the directory, never a way out of it.
        if not key or key in (".", "..") or "/" in key or "\0" in key:
            raise ConfigError(f"{key} is not a file name in {directory}")
        return _text(directory / key)

    return get


def _allowed(option: str, paths: str | None) -> Callable[[str], Path]:
    """Return a function that reads a path and raises ConfigError for a forbidden one."""
    within: list[Path] = []
    for text in (paths or "").split(",") if paths else ():
        path = Path(os.path.normpath(text))
        if not path.is_absolute():
            raise ConfigError(f"{option}: {path} is not absolute")
        if not path.exists():
            raise ConfigError(f"{option}: {path} does not exist")
        within.append(path)

    def allow(text: str) -> Path:
        if not text:
            raise ConfigError("it names no path: write ${provider:path:key}")
        if not within:
            return Path(text)
        path = Path(os.path.normpath(text))
        if not any(path.is_relative_to(one) for one in within):
            raise ConfigError(f"{option} does not allow {path}")
        return path

    return allow


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8") from error
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:  # a path with a null byte in it
        raise ConfigError(f"{file!s:.100} is not a path") from error
