"""Show bytes, numbers of them, and tables to people."""

from collections.abc import Collection, Iterator, Sequence

from rich.filesize import decimal


def show_bytes(data: bytes | bytearray | None) -> str:
    """Show bytes as text where they are printable UTF-8, and as hexadecimal elsewhere."""
    if data is None:
        return "(null)"
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return "0x" + bytes(data).hex()
    return text if text.isprintable() else "0x" + bytes(data).hex()


def show_size(size_bytes: float) -> str:
    """Show a number of bytes: 3.2 MB."""
    return decimal(round(size_bytes))


def show_count(count: int, noun: str) -> str:
    """Show a number of things: 1 run, 12 runs."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def lay_out(
    rows: Sequence[Sequence[str]], *, left: Collection[str] = ()
) -> Iterator[str]:
    """Lay cells out in lines, the first row as headings; columns not in ``left`` align right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(rows[0], row, widths, strict=True)
        yield "  ".join(
            cell.ljust(width) if heading in left else cell.rjust(width)
            for heading, cell, width in cells
        ).rstrip()
