"""Where the ranks are: on hosts with links of a rate, or all on one."""

from __future__ import annotations

import re

from benchmarks.net.hosts import RATE, Hosts

LINKS = ("100mbit", "1gbit", "10gbit", "none")
ONE_HOST = "one-host"  # all ranks on one, over shared memory
_UNITS = {"kbit": "kb/s", "mbit": "Mb/s", "gbit": "Gb/s"}


def is_link(text: str) -> bool:
    return text == ONE_HOST or RATE.fullmatch(text) is not None


def link_text(rate: str) -> str:
    """'100mbit' is '100 Mb/s', 'none' is 'unshaped'."""
    if rate == ONE_HOST:
        return "one host"
    match = re.fullmatch(r"([0-9.]+)([kmg]bit)", rate)
    return f"{match[1]} {_UNITS[match[2]]}" if match else "unshaped"


def make_hosts(rate: str, ranks: int, per_host: int = 1) -> Hosts:
    """So many ranks on each, or all on one."""
    return Hosts(1) if rate == ONE_HOST else Hosts(ranks // per_host, rate)
