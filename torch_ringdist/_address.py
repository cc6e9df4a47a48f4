"""Parses and formats addresses of stores: "host:port" of a TCPStore, and "ringdist://host:port" of
a store of ringdist's own."""

from __future__ import annotations

import re

SCHEME = "ringdist://"


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


def parse_store(text: str) -> tuple[str, int, bool] | None:
    """Returns host, port, and True for a store of ringdist's own; None if `text` is no address."""
    place = parse(text.removeprefix(SCHEME))
    return None if place is None else (*place, text.startswith(SCHEME))


def join_store(host: str, port: int, is_own: bool) -> str:
    """Returns the address as text that parse_store() reads."""
    return f"{SCHEME if is_own else ''}{join(host, port)}"
