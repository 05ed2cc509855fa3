"""A Kerberos key distribution center with a realm of its own (Debian's krb5-kdc)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import free_port
from tests.support.waiting import wait_until

REALM = "ODRADEK.TEST"
SERVICE = "kafka/localhost"
# Debian puts the server's programs where only root looks.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
_KRB5 = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  rdns = false
  dns_canonicalize_hostname = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
_KDC = """\
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    max_life = 10h
  }}
"""


def lacks_kdc() -> str:
    """Return why no center can run here, "" if one can."""
    for one in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit"):
        if _find(one) is None:
            return f"{one} is not installed: krb5-kdc, krb5-admin-server and krb5-user have it"
    return ""


@dataclass
class Kdc:
    """A running center; its environment is for clients and services of its realm."""

    folder: Path

    @property
    def config(self) -> Path:
        """The krb5.conf of the realm."""
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that let MIT's library find the realm, and keep its files apart."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5RCACHEDIR": str(self.folder),
            "PATH": _PATH,
        }

    def keytab(self, principal: str) -> Path:
        """Add a principal with a random key; return a file with the key."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        if not path.exists():
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self.add_key(principal, path)
        return path

    def add_key(self, principal: str, path: Path) -> None:
        """Give a principal a new key, and add it to a file."""
        self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")

    def ticket(self, principal: str) -> dict[str, str]:
        """Let a principal log in; return the environment of its programs."""
        cache = self.folder / f"{principal.replace('/', '-')}.cache"
        self._run("kinit", "-k", "-t", str(self.keytab(principal)), "-c", str(cache), principal)
        return {**self.environment, "KRB5CCNAME": f"FILE:{cache}"}

    def create(self, port: int) -> None:
        """Write the files and the database of the realm."""
        names = {"realm": REALM, "port": port, "folder": self.folder}
        self.config.write_text(_KRB5.format(**names))
        (self.folder / "kdc.conf").write_text(_KDC.format(**names))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "a master key")

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def running_kdc(folder: Path) -> Iterator[Kdc]:
    """Run a center in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    kdc, port = Kdc(folder), free_port()
    kdc.create(port)
    program = _find("krb5kdc")
    assert program is not None
    with (folder / "kdc.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-n", "-r", REALM],
            env={**os.environ, **kdc.environment},
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _is_open(port), shown=(folder / "kdc.log").read_text)
        yield kdc
    finally:
        process.terminate()
        process.wait(30)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _find(program: str) -> str | None:
    return shutil.which(program, path=_PATH)
