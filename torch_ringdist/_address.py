"""Where a store is: "host:port"."""

from __future__ import annotations


def parse(text: str) -> tuple[str, int] | None:
    """Host and port; None if it is no such text. Brackets around an IPv6 address are left out."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isascii() or not port.isdecimal():
        return None
    return (host, int(port)) if int(port) <= 65535 else None


def join(host: str, port: int) -> str:
    """As parse() reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
