"""Parses and formats the address of a store, "host:port"."""

from __future__ import annotations

import re


def parse(text: str) -> tuple[str, int] | None:
    """Returns host and port, or None if `text` is not an address. Brackets around an IPv6 address
    are removed."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", port):
        return None
    return (host, int(port)) if int(port) <= 65535 else None


def join(host: str, port: int) -> str:
    """Returns the address as text that parse() reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
