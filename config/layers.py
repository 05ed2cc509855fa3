"""The sources of a broker's static settings: a file, the environment, the command line.

The file is a Java properties file. The environment is read as the scripts of Kafka's images
read it. `--set key=value` overrides both. Each setting keeps a note of where it was written, for
errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek.config.errors import ConfigError, raise_any
from odradek.config.properties import Settings, from_properties
from odradek.config.providers import provide
from odradek.config.resolution import Layer, Source

# The variables that Kafka's images keep out of server.properties (KafkaDockerWrapper, Kafka 4.3).
EXCLUDED_VARIABLES = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
# The variables by which the scripts of Kafka and of its images configure Java, which is not here.
# Kafka itself ignores the settings that these would become.
_FOR_JAVA = re.compile(r"KAFKA_(?:DEBUG|JMX_PORT|JMX_RMI_PORT|LOG4J_.*|CLASSPATH)")

_PREFIX = "KAFKA_"
_NAME = re.compile(r"[\w.-]+")
_HOST = re.compile(r"://[^:]*:")


def static_layer(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    pairs: Iterable[str] = (),
) -> Layer:
    """Read the static settings: pairs override the environment, which overrides the file.

    `pairs` are texts of the form key=value. Where listeners is not set, it follows from
    KAFKA_ADVERTISED_LISTENERS, on every interface. References to values that are kept elsewhere
    are resolved (config.providers). Raise ConfigError for a file that cannot be read, for text
    in any of the three that is no setting, and for references that lead nowhere.
    """
    environment = environment or {}
    settings = _derived_listeners(environment)
    problems: list[str] = []
    try:
        if file is not None:
            settings |= from_properties(_read(file), str(file))
    except ConfigError as error:
        problems += error.problems
    settings |= from_environment(environment)
    try:
        settings |= from_pairs(pairs)
    except ConfigError as error:
        problems += error.problems
    raise_any(problems)
    settings = provide(settings, environment)
    return Layer(
        Source.STATIC_BROKER,
        {name: value for name, (value, _) in settings.items()},
        {name: origin for name, (_, origin) in settings.items()},
    )


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings among environment variables, as Kafka's images do.

    KAFKA_LOG_DIRS is log.dirs: `_` stands for a dot, `__` for an underscore, `___` for a
    dash. CLUSTER_ID is odradek.cluster.id.
    """
    settings: Settings = {}
    for variable in sorted(environment):
        if variable in EXCLUDED_VARIABLES or _FOR_JAVA.fullmatch(variable):
            continue
        if variable.startswith(_PREFIX):
            name = variable.removeprefix(_PREFIX).lower().replace("_", ".")
            name = name.replace("...", "-").replace("..", "_")
            # The images treat an empty KAFKA_LISTENERS as none.
            if name and (name != "listeners" or environment[variable]):
                settings[name] = (environment[variable], f"environment {variable}")
    if environment.get("CLUSTER_ID"):
        settings["odradek.cluster.id"] = (environment["CLUSTER_ID"], "environment CLUSTER_ID")
    return settings


def from_pairs(pairs: Iterable[str]) -> Settings:
    """Read key=value texts of the command line; raise ConfigError for texts of another form."""
    settings: Settings = {}
    problems = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # The error leaves out the rest, which may be a password.
            name = _NAME.match(key)
            problems.append(f"--set {name[0] if name else ''}: write it as key=value")
        settings[key.strip()] = (value, "--set")
    raise_any(problems)
    return settings


def _derived_listeners(environment: Mapping[str, str]) -> Settings:
    """Derive listeners from the advertised ones, as the images' configure script does."""
    variable = "KAFKA_ADVERTISED_LISTENERS"
    if not environment.get(variable):
        return {}
    everywhere = _HOST.sub("://0.0.0.0:", environment[variable])
    return {"listeners": (everywhere, f"environment {variable}")}


def _read(file: Path) -> str:
    try:
        # Java reads properties as ISO 8859-1, in which any byte is some character.
        return file.read_bytes().decode("latin-1")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
