"""A certificate's distinguished name, as Java prints it: X500Principal.getName, RFC 2253.

    CN=alice,OU=Sales\\, Europe,O=Acme,1.2.840.113549.1.9.1=#1607614062...

Principals in ACLs are these texts, so they have to equal Java's exactly: the last RDN comes
first, the types in RFC 2253 have their names there, and other types are dotted numbers with the
value in hexadecimal (sun.security.x509.AVA.toRFC2253String).
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.broker.security.tls.der import Element, elements, subject_of

# The types with a name in RFC 2253, by their encoded numbers.
_KEYWORDS = {
    bytes((0x55, 0x04, 0x03)): "CN",
    bytes((0x55, 0x04, 0x06)): "C",
    bytes((0x55, 0x04, 0x07)): "L",
    bytes((0x55, 0x04, 0x08)): "ST",
    bytes((0x55, 0x04, 0x09)): "STREET",
    bytes((0x55, 0x04, 0x0A)): "O",
    bytes((0x55, 0x04, 0x0B)): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
# The types of strings: UTF8, Printable, T61, IA5, General, BMP. Java reads them all as UTF-8.
_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_ESCAPED = frozenset(',=+<>#;"\\')
_EDGE_SPACES = " \r"
# The bound of a number in an object identifier; UUIDs have 128 bits. The time to read a number is
# quadratic in its length.
_NUMBER_BITS = 256


def subject_name(certificate: bytes) -> str:
    """Return the subject's name. Raises ValueError for a malformed certificate."""
    return rfc2253_name(subject_of(certificate))


def rfc2253_name(subject: bytes) -> str:
    """Return the name of a sequence of RDNs, given without its own tag. Raises ValueError."""
    return ",".join("+".join(_attributes(one)) for one in reversed(list(elements(subject))))


def _attributes(rdn: Element) -> Iterator[str]:
    for attribute in rdn.parts():
        kind, value = attribute.parts()
        keyword = _KEYWORDS.get(kind.content)
        if keyword is None or value.tag not in _STRINGS:
            yield f"{keyword or _dotted(kind.content)}=#{value.whole.hex()}"
        else:
            yield f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    plain = "".join(map(_escaped_character, text))
    lead = len(plain) - len(plain.lstrip(_EDGE_SPACES))
    trail = len(plain.rstrip(_EDGE_SPACES)) if lead < len(plain) else len(plain)
    return "".join(
        f"\\{one}" if at < lead or at >= trail else one for at, one in enumerate(plain)
    )


def _escaped_character(one: str) -> str:
    if one in _ESCAPED:
        return f"\\{one}"
    return "\\00" if one == "\0" else one


def _dotted(content: bytes) -> str:
    """Return the number of an object identifier (X.690, 8.19)."""
    numbers = []
    number = 0
    for one in content:
        number = number << 7 | one & 0x7F
        if not one & 0x80:
            numbers.append(number)
            number = 0
        elif number >> _NUMBER_BITS:
            raise ValueError("the type of an attribute has a number that is too long")
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, [first, *(n - 40 * first for n in numbers[:1]), *numbers[1:]]))
