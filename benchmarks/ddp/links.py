"""Places ranks on hosts with links of a rate, or all on one host."""

from __future__ import annotations

import re

from benchmarks.net.hosts import RATE, Hosts

LINKS = ("100mbit", "1gbit", "10gbit", "none")
ONE_HOST = "one-host"  # all ranks on one host, over shared memory
_UNITS = {"kbit": "kb/s", "mbit": "Mb/s", "gbit": "Gb/s"}


def is_link(text: str) -> bool:
    return text == ONE_HOST or RATE.fullmatch(text) is not None


def link_text(rate: str) -> str:
    """Returns a text for a rate: '100 Mb/s' for '100mbit', 'unshaped' for 'none'."""
    if rate == ONE_HOST:
        return "one host"
    match = re.fullmatch(r"([0-9.]+)([kmg]bit)", rate)
    return f"{match[1]} {_UNITS[match[2]]}" if match else "unshaped"


def make_hosts(rate: str, ranks: int, per_host: int = 1) -> Hosts:
    """Returns hosts with `per_host` ranks each, or one host with all ranks."""
    return Hosts(1) if rate == ONE_HOST else Hosts(ranks // per_host, rate)
