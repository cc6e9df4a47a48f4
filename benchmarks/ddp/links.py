"""Links, as a reader writes them."""

from __future__ import annotations

import re

LINKS = ("100mbit", "1gbit", "10gbit", "none")
_UNITS = {"kbit": "kb/s", "mbit": "Mb/s", "gbit": "Gb/s"}


def link_text(rate: str) -> str:
    """'100mbit' is '100 Mb/s', 'none' is 'unshaped'."""
    match = re.fullmatch(r"([0-9.]+)([kmg]bit)", rate)
    return f"{match[1]} {_UNITS[match[2]]}" if match else "unshaped"
