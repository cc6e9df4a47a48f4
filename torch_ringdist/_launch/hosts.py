"""Assigns ranks to hosts: -np, -H and --hostfile of ringdistrun."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Without "-" in front, which makes an option for ssh, also behind a user's name and "@".
_HOST = re.compile(r"(?!-)[^\s@]+(?:@(?!-)[^\s@]+)?")


@dataclass(frozen=True)
class Share:
    """`count` ranks of one host, starting at rank `first`."""

    host: str
    first: int
    count: int


def parse_hosts(text: str) -> list[tuple[str, int]]:
    """Parses the value of -H, such as "a:2,b:4", into names and slots. The default is one slot.

    Raises:
        ValueError: the text has another format.
    """
    what = '-H must be "HOST:SLOTS,HOST:SLOTS"'
    return [parse_host(part, what) for part in text.split(",")]


def parse_hostfile(path: Path) -> list[tuple[str, int]]:
    """Parses a file with OpenMPI's lines of "host slots=2"; text after # is a comment.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line has another format.
    """
    out = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not (words := line.split("#")[0].split()):
            continue
        found = re.fullmatch(r"(\S+?)(?:\s+slots\s*=\s*(\d+))?", " ".join(words))
        if not found:
            raise ValueError(f'{path}:{number}: expected "HOST slots=N", got {line!r}')
        out.append(_checked(found[1], int(found[2] or 1)))
    return out


def parse_host(text: str, what: str, slots: int = 1) -> tuple[str, int]:
    """Parses "a:2" into name and slots; the default is `slots`. Raises ValueError that begins with
    `what`."""
    found = re.fullmatch(r"([^:\s]+|\[[^\]\s]+\])(?::(\d+))?", text.strip())
    if not found:
        raise ValueError(f"{what}, got {text!r}")
    return _checked(found[1].strip("[]"), int(found[2] or slots))


def _checked(host: str, slots: int) -> tuple[str, int]:
    if not _HOST.fullmatch(host) or not host.isprintable():
        raise ValueError(f"{host!r} is no name or address of a host")
    if slots < 1:
        raise ValueError(f"host {host} must have at least 1 slot, got {slots}")
    return host, slots


def shares(hosts: Sequence[tuple[str, int]], ranks: int) -> list[Share]:
    """Assigns ranks to slots in the given order; hosts without ranks are left out.

    Raises:
        ValueError: there are fewer slots than ranks, or a host appears twice.
    """
    names = [name for name, _ in hosts]
    if len(set(names)) < len(names):
        raise ValueError(f"each host once: {', '.join(names)}")
    slots = sum(count for _, count in hosts)
    if slots < ranks:
        raise ValueError(
            f"-np {ranks}: the hosts have {slots} slots: "
            + ", ".join(f"{name}:{count}" for name, count in hosts)
        )
    out, first = [], 0
    for name, count in hosts:
        used = min(count, ranks - first)
        if used > 0:
            out.append(Share(name, first, used))
        first += used
    return out
