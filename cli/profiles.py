"""Profiles: named addresses and properties of clusters, in a file of the user's.

    [odradek]
    current = production

    [profile production]
    url = https://broker-1:9308
    registry = https://registry:8081
    bootstrap.servers = broker-1:9092,broker-2:9092
    sasl.password = …

The file is `odradek/profiles.ini` in XDG_CONFIG_HOME (`~/.config`), or ODRADEK_PROFILES names it.
It may hold passwords: no other user can read it.
"""

from __future__ import annotations

import configparser
import io
import os
import re
from dataclasses import field
from pathlib import Path

from odradek.cli.refusals import CommandError, did_you_mean
from odradek.dataclass import dataclass

FILE_VARIABLE = "ODRADEK_PROFILES"
SERVERS = "bootstrap.servers"
_GENERAL, _CURRENT, _URL, _REGISTRY = "odradek", "current", "url", "registry"
_SECTION = re.compile(r"profile (.+)")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")


@dataclass(slots=True)
class Profile:
    """A cluster: librdkafka's properties, and the URLs of an HTTP listener and a registry."""

    properties: dict[str, str] = field(default_factory=dict)
    url: str | None = None
    registry: str | None = None

    @property
    def servers(self) -> str | None:
        """The addresses of the brokers."""
        return self.properties.get(SERVERS)


class Profiles:
    """The profiles in the file; a command that changes them stores them."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file, if there is one. Raises CommandError."""
        self.path = path or _default_path()
        self.by_name: dict[str, Profile] = {}
        self.current: str | None = None
        parser = _parser()
        try:
            with self.path.open(encoding="utf-8") as opened:
                parser.read_file(opened)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CommandError(f"cannot read {self.path}: {error.strerror}") from error
        except (configparser.Error, UnicodeDecodeError) as error:
            reason = str(error).replace("\n", " ")
            raise CommandError(f"{self.path} is no file of profiles: {reason}") from error
        self.current = parser.get(_GENERAL, _CURRENT, fallback=None)
        for section in parser.sections():
            match = _SECTION.fullmatch(section)
            if match:
                properties = dict(parser[section])
                urls = properties.pop(_URL, None), properties.pop(_REGISTRY, None)
                self.by_name[match[1]] = Profile(properties, *urls)

    def named(self, name: str) -> Profile:
        """Return a profile; raises CommandError when there is none of that name."""
        if name not in self.by_name:
            hint = did_you_mean(name, self.by_name) or ": odradek profile list shows all"
            raise CommandError(f"there is no profile {name}{hint}")
        return self.by_name[name]

    def chosen(self) -> Profile | None:
        """Return the current profile, None when none is chosen."""
        return self.by_name.get(self.current) if self.current is not None else None

    def store(self) -> None:
        """Replace the file, which only this user can read. Raises CommandError."""
        from odradek.storage.errors import DiskFailure
        from odradek.storage.real_files import RealFileSystem

        parser = _parser()
        if self.current is not None:
            parser[_GENERAL] = {_CURRENT: self.current}
        for name, profile in sorted(self.by_name.items()):
            urls = {_URL: profile.url, _REGISTRY: profile.registry}
            known = {key: url for key, url in urls.items() if url is not None}
            parser[f"profile {name}"] = {**known, **profile.properties}
        text = io.StringIO()
        parser.write(text)
        files = RealFileSystem()
        try:
            files.make_directory(self.path.parent)
            files.write_atomically(self.path, text.getvalue().encode(), is_private=True)
        except DiskFailure as error:
            raise CommandError(f"cannot write {self.path}: {error}") from error
        finally:
            files.close()


def check_name(name: str) -> None:
    """Raise CommandError for a name that no profile can have."""
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"{name!r} cannot name a profile: use up to 60 letters, digits, dots, dashes and "
            "underscores"
        )


def _default_path() -> Path:
    own = os.environ.get(FILE_VARIABLE)
    if own:
        return Path(own)
    home = os.environ.get("XDG_CONFIG_HOME")
    folder = Path(home) if home else Path.home() / ".config"
    return folder / "odradek" / "profiles.ini"


def _parser() -> configparser.ConfigParser:
    # Names of properties have dots and capitals; values are taken as they are.
    parser = configparser.ConfigParser(
        interpolation=None, delimiters=("=",), default_section="", comment_prefixes=("#",)
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    return parser
