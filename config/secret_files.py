"""Files with secrets, which only the broker's own user should be able to read.

These are private keys, the files that ${file:…} and ${directory:…} refer to, and settings files
with a password in them.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from odradek.config.effective import BROKER_OPTION, is_sensitive
from odradek.config.providers import referred_files
from odradek.config.resolution import Layer

_HTTP_KEY, _HTTP_CERTIFICATE = "odradek.http.tls.key", "odradek.http.tls.certificate"
_KEYS = (_HTTP_KEY, _HTTP_CERTIFICATE, "ssl.keystore.location")
_LINE = re.compile(r"(.+) line \d+")


def open_secret_files(layer: Layer) -> Iterator[str]:
    """Yield a warning for each file of the static settings that every user may read."""
    for path, what in dict(_secret_files(layer)).items():
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue  # the code that needs the file reports the error
        if mode & stat.S_IROTH:
            problem = f"every user of this machine may read {path}, which holds {what}"
            yield f"{problem}: chmod o= {path}"


def _secret_files(layer: Layer) -> Iterator[tuple[Path, str]]:
    has_key = bool(layer.values.get(_HTTP_KEY, "").strip())
    for name, text in layer.values.items():
        origin = layer.origins.get(name, "")
        # A certificate is public; its file has the key only where no other file has it.
        is_key = name.endswith(_KEYS) and not (name == _HTTP_CERTIFICATE and has_key)
        if is_key and text.strip():
            yield Path(text.strip()), f"the key of {name}"
        if not is_sensitive(name):
            continue
        yield from ((path, f"the value of {name}") for path in referred_files(origin))
        written = _LINE.fullmatch(origin)
        if written is not None and text:
            yield Path(written[1]), f"the value of {name}"


assert all(name in BROKER_OPTION for name in _KEYS), "a name has changed"
