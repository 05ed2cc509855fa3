"""Settings for pushing the broker's metrics to a collector (OpenTelemetry, OTLP over HTTP)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import SplitResult, unquote, urlsplit

from odradek.config.errors import ConfigError
from odradek.config.option import option, options
from odradek.config.values import Validator, Value, at_least, int64, password

_ENDPOINT, _HEADERS = "odradek.otlp.endpoint", "odradek.otlp.headers"
# The specification's path for metrics, for an endpoint that has no path.
_METRICS_PATH = "/v1/metrics"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110
_VALUE = re.compile(r"[\t\x20-\x7e]*")


def _check_endpoint(name: str, value: Value) -> None:
    # The error does not quote the value: it may hold a password where none is expected.
    try:
        url = urlsplit(str(value).strip())
        is_url = not value or (url.scheme in ("http", "https") and bool(url.hostname))
        _ = url.port
    except ValueError:
        is_url = False
    if not is_url:
        raise ConfigError(
            f"Invalid value for configuration {name}: write http://host:port or https://host:port"
        )
    if url.username is not None or url.password is not None:
        raise ConfigError(
            f"Invalid value for configuration {name}: it must not hold a user or password; write "
            f"Authorization=Basic … into {_HEADERS}"
        )


def _check_headers(name: str, value: Value) -> None:
    for header, text in _pairs(str(value)):
        if not _TOKEN.fullmatch(header) or not _VALUE.fullmatch(text):
            raise ConfigError(
                f"Invalid value for configuration {name}: write name=value, with commas between "
                "several, and a comma or a character that is not printable ASCII as %2C"
            )


@options
class OtlpConfig:
    """The settings of pushed metrics."""

    odradek_otlp_endpoint: str = option(
        "odradek.otlp.endpoint",
        default="",
        valid=Validator("http(s)://host:port", _check_endpoint),
        doc="The OpenTelemetry collector to push the metrics of /metrics to, by OTLP over HTTP as "
        f"JSON, such as http://127.0.0.1:4318; {_METRICS_PATH} is the path when there is none. "
        "Empty turns it off.",
    )
    odradek_otlp_headers: password | None = option(
        "odradek.otlp.headers",
        default=None,
        valid=Validator("name=value,...", _check_headers),
        doc="Headers that the collector requires, as in Authorization=Bearer%20secret; commas "
        "and characters other than ASCII are written as a percent sign and two digits.",
    )
    odradek_otlp_interval_ms: int64 = option(
        "odradek.otlp.interval.ms",
        default=60_000,
        valid=at_least(100),
        doc="How often metrics are pushed to odradek.otlp.endpoint.",
    )

    @property
    def url(self) -> SplitResult:
        """The URL to push to."""
        url = urlsplit(self.odradek_otlp_endpoint.strip())
        return url if url.path not in ("", "/") else url._replace(path=_METRICS_PATH)

    @property
    def headers(self) -> dict[str, str]:
        """The headers to push with. They hold secrets."""
        return dict(_pairs(self.odradek_otlp_headers or ""))


def otlp_problems(config: OtlpConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each contradiction, with the names of its options."""
    if config.odradek_otlp_headers and not config.odradek_otlp_endpoint:
        yield f"{_HEADERS} is set, and {_ENDPOINT} is not", (_HEADERS,)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = word.partition("=")
        yield name.strip(), unquote(value.strip())
