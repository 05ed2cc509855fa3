"""The profile of AWS's two files that counts here, read as the AWS CLI reads them.

Both are INI files. `~/.aws/credentials` has a section [name] for each profile, `~/.aws/config`
has [default] and [profile name]. A setting of the first file counts before the second's. An access
key is that of one file as a whole.
"""

from __future__ import annotations

import errno
import logging
import shlex
from collections.abc import Mapping
from configparser import Error, RawConfigParser
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from odradek.dataclass import dataclass
from odradek.storage.objects.store import StoreRefused

if TYPE_CHECKING:
    from obstore.store import S3Credential

logger = logging.getLogger(__name__)

# The library asks again before each request for a key that has expired.
_EXPIRED = datetime.fromtimestamp(0, UTC)
_ID, _SECRET, _TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
_PATH_STYLES = {"path": True, "virtual": False}
# Keys by which AWS's tools get a credential elsewhere; the first ones count before the key of
# the credentials file, the others before that of the config file.
_BEFORE_CREDENTIALS = ("web_identity_token_file", "role_arn", "sso_account_id", "sso_role_name")
_BEFORE_CONFIG = ("login_session", "credential_process")

_Section = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AwsKey:
    """An access key; one that is temporary has a token."""

    id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class AwsProfile:
    """The sections of a profile in both files, and the config file's sections about services."""

    name: str
    files: AwsFiles
    credentials: _Section = field(repr=False)
    config: _Section = field(repr=False)
    services: Mapping[str, _Section] = field(repr=False)

    @property
    def region(self) -> str | None:
        """The region, or None."""
        return self._setting("region")

    @property
    def endpoint(self) -> str | None:
        """The address of S3, or else that of all services, or None; raises StoreRefused."""
        name = self._setting("services")
        if name and name not in self.services:
            raise StoreRefused(
                f"profile {self.name} names services {name}, but {self.files.config} has no "
                f"section [services {name}]; correct the name, or add the section"
            )
        of_s3 = _nested(self.services[name].get("s3", "")) if name else {}
        return of_s3.get("endpoint_url") or self._setting("endpoint_url")

    @property
    def path_style(self) -> bool | None:
        """Whether a bucket's name is in the path of a request, or None."""
        style = _nested(self._setting("s3") or "").get("addressing_style", "")
        return _PATH_STYLES.get(style)

    @property
    def has_role(self) -> bool:
        """Whether a role of the profile counts even before the variables of a web identity."""
        return "role_arn" in self._merged and "web_identity_token_file" not in self._merged

    def key(self) -> AwsKey | None:
        """Return the access key, or None; raise StoreRefused for another source of credentials."""
        self._refuse(_BEFORE_CREDENTIALS)
        if _ID in self.credentials:
            return self._key(self.credentials, self.files.credentials)
        self._refuse(_BEFORE_CONFIG)
        return self._key(self.config, self.files.config) if _ID in self.config else None

    def _key(self, section: _Section, path: Path) -> AwsKey:
        if not section[_ID] or not section.get(_SECRET):
            raise StoreRefused(f"profile {self.name} of {path} needs both {_ID} and {_SECRET}")
        return AwsKey(section[_ID], section[_SECRET], section.get(_TOKEN) or None)

    def _refuse(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            if key in self._merged:
                path = self.files.credentials if key in self.credentials else self.files.config
                raise StoreRefused(
                    f"profile {self.name} of {path} has {key}, which Odradek does not support; "
                    "name a profile with an access key by AWS_PROFILE, or set AWS_ACCESS_KEY_ID "
                    "and AWS_SECRET_ACCESS_KEY"
                )

    @property
    def _merged(self) -> _Section:
        return {**self.config, **self.credentials}

    def _setting(self, key: str) -> str | None:
        return self._merged.get(key) or None


class AwsFiles:
    """The files, and the name of the profile, that the variables of a process choose."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._named = environment.get("AWS_PROFILE") or None
        self.credentials = _path(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials")
        self.config = _path(environment, "AWS_CONFIG_FILE", "config")

    def profile(self) -> AwsProfile:
        """Read the profile; raise StoreRefused for a missing one, and for a damaged file."""
        name = self._named or "default"
        credentials = _sections(self.credentials).get(name)
        sections = _sections(self.config)
        config = _named(sections, "profile").get(name)
        if config is None and name == "default":
            config = sections.get(name)
        if self._named and credentials is None and config is None:
            raise StoreRefused(
                f"AWS_PROFILE names {name}, but neither {self.credentials} nor {self.config} has "
                "this profile; correct the name, or add the profile"
            )
        services = _named(sections, "services")
        return AwsProfile(name, self, credentials or {}, config or {}, services)

    def stamp(self) -> list[tuple[int, ...]]:
        """Return a value that changes with the files."""
        return [_stamp(path) for path in (self.credentials, self.config)]


class KeyOfFiles:
    """Gives the library the key of a profile, which is read again once a file changes.

    The library calls it before each request, one call at a time.
    """

    def __init__(self, files: AwsFiles, key: AwsKey) -> None:
        self._files = files
        self._key = key
        self._stamp: list[tuple[int, ...]] | None = None

    def __call__(self) -> S3Credential:
        """Return the key; the former one if a file is not whole, as while a tool writes it."""
        stamp = self._files.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._read()
        return {
            "access_key_id": self._key.id,
            "secret_access_key": self._key.secret,
            "token": self._key.token,
            "expires_at": _EXPIRED,
        }

    def _read(self) -> None:
        try:
            key = self._files.profile().key()
        except StoreRefused as error:
            logger.warning("kept the former access key: %s", error)
            return
        if key is None:
            logger.warning("kept the former access key: the profile has none any more")
            return
        self._key = key


def _path(environment: Mapping[str, str], variable: str, name: str) -> Path:
    path = Path(environment.get(variable) or f"~/.aws/{name}")
    try:
        return path.expanduser()
    except RuntimeError:  # a user without a home
        return path


def _sections(path: Path) -> dict[str, _Section]:
    """Return the sections of a file, none if there is no file."""
    if not _stamp(path):
        return {}
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise StoreRefused(f"{path} is not in UTF-8; correct the file") from None
    except OSError as error:
        cause = errno.errorcode.get(error.errno or 0, type(error).__name__)
        raise StoreRefused(f"{path} cannot be read ({cause}); allow the broker to") from None
    parser = RawConfigParser()
    try:
        parser.read_string(text)
    except Error as error:  # its text has lines of the file
        raise StoreRefused(
            f"{path} cannot be parsed ({type(error).__name__}); correct the file"
        ) from None
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _named(sections: Mapping[str, _Section], kind: str) -> dict[str, _Section]:
    """Return the sections [kind name] by their names, which may be quoted."""
    found = {}
    for title, section in sections.items():
        try:
            words = shlex.split(title)
        except ValueError:  # a quotation mark without another one
            continue
        if len(words) == 2 and words[0] == kind:
            found[words[1]] = section
    return found


def _nested(text: str) -> dict[str, str]:
    """Return the settings of a value that has indented lines, such as that of s3."""
    pairs = [line.partition("=") for line in text.splitlines()]
    return {name.strip(): value.strip() for name, sign, value in pairs if sign}


def _stamp(path: Path) -> tuple[int, ...]:
    """Return a value that changes with a file, or an empty one if there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    if not S_ISREG(status.st_mode):
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
