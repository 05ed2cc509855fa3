"""Show bytes to people."""


def show_bytes(data: bytes | bytearray | None) -> str:
    """Show bytes as text where they are printable UTF-8, and as hexadecimal elsewhere."""
    if data is None:
        return "(null)"
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return "0x" + bytes(data).hex()
    return text if text.isprintable() else "0x" + bytes(data).hex()
