"""Reads the parts of certificates that the broker needs: subject, end, alternative names.

    Certificate ::= SEQUENCE { tbsCertificate SEQUENCE {
        [0] version, serial number, algorithm, issuer, validity, subject, public key,
        [1] [2] ids, [3] extensions }, algorithm, signature }                      (RFC 5280)

OpenSSL has checked these certificates, or they come from the broker's own files.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from odradek.dataclass import dataclass

_LONG_LENGTH = 0x80
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_ALTERNATIVE_NAMES = bytes((0x55, 0x1D, 0x11))  # 2.5.29.17
# The number of elements of tbsCertificate before the subject, without the version.
_BEFORE_SUBJECT = 4
_UTC_TIME = 0x17


@dataclass(frozen=True, slots=True)
class Element:
    """One value: its tag, its content, and the whole encoded element."""

    tag: int
    content: bytes
    whole: bytes

    def parts(self) -> list[Element]:
        """Return the elements that the content consists of. Raises ValueError."""
        return list(elements(self.content))


def elements(data: bytes) -> Iterator[Element]:
    """Iterate over elements that follow each other. Raises ValueError for malformed DER."""
    position = 0
    while position < len(data):
        if position + 2 > len(data):
            raise ValueError("an element without a length")
        start, tag, size = position, data[position], data[position + 1]
        position += 2
        if size & _LONG_LENGTH:
            count = size & ~_LONG_LENGTH
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("an element that runs past its end")
        yield Element(tag, data[position:end], data[start:end])
        position = end


def subject_of(certificate: bytes) -> bytes:
    """Return the content of a certificate's subject, a sequence of RDNs. Raises ValueError."""
    parts = [one for one in _to_be_signed(certificate) if one.tag != _VERSION]
    return parts[_BEFORE_SUBJECT].content


def end_of(certificate: bytes) -> datetime:
    """Return the end of a certificate's validity. Raises ValueError."""
    parts = [one for one in _to_be_signed(certificate) if one.tag != _VERSION]
    end = parts[_BEFORE_SUBJECT - 1].parts()[1]
    text = end.content.decode("ascii")
    if end.tag == _UTC_TIME:  # has two digits for the year, up to 2049
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """Return a certificate's subject alternative names, as encoded. Raises ValueError."""
    for part in _to_be_signed(certificate):
        if part.tag != _EXTENSIONS:
            continue
        for extension in part.parts()[0].parts():
            oid, *_, value = extension.parts()
            if oid.content == _ALTERNATIVE_NAMES:
                (names,) = elements(value.content)
                return frozenset(one.whole for one in names.parts())
    return frozenset()


def _to_be_signed(certificate: bytes) -> list[Element]:
    (whole,) = elements(certificate)
    return whole.parts()[0].parts()
