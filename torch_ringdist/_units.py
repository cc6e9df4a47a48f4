"""Parses sizes, rates and times, and formats them and tables of text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

# Longer timeouts are reduced to this one, as in the engine. torch overflows for timeouts of more
# than 292,000 years and may give a negative number.
LONGEST = timedelta(days=365 * 100)
_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _BYTES[_letter] = _BYTES[f"{_letter}i"] = _BYTES[f"{_letter}ib"] = 1024**_power
    _BYTES[f"{_letter}b"] = 1000**_power
_RATES = {"": 1, "bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_TIMES = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?)\s*([a-z]*)")


def parse_bytes(argument: str, text: str) -> int:
    """Returns the bytes of "1M", "64KiB" (of 1024) or "100MB" (of 1000). Raises ValueError that
    names `argument`."""
    accepted = "bytes as 1048576, 64K, 64KiB, 1M (of 1024) or 100MB (of 1000)"
    return round(_parse(argument, text, _BYTES, accepted))


def parse_rate(argument: str, text: str) -> float:
    """Returns bits per second for text such as "1gbit". Raises ValueError that names `argument`."""
    rate = _parse(argument, text, _RATES, "bits per second as 100mbit, 1gbit or 10gbit")
    if not 1e4 <= rate <= 1e15:
        raise ValueError(f"{argument}: expected 10kbit to 1000tbit, got {text!r}")
    return rate


def parse_time(argument: str, text: str) -> int:
    """Returns nanoseconds for text such as "50us". Raises ValueError that names `argument`."""
    time = _parse(argument, text, _TIMES, "a time as 200ns, 50us or 1ms")
    if time > 1e10:
        raise ValueError(f"{argument}: expected at most 10s, got {text!r}")
    return round(time)


def _parse(argument: str, text: str, units: Mapping[str, float], accepted: str) -> float:
    match = _NUMBER.fullmatch(text.strip().lower())
    if not match or match.group(2) not in units or len(text) > 40:
        raise ValueError(f"{argument}: expected {accepted}, got {text!r}")
    value = float(match.group(1)) * units[match.group(2)]
    if not math.isfinite(value):
        raise ValueError(f"{argument}: expected {accepted}, got {text!r}, which is too much")
    return value


def format_bytes(count: float) -> str:
    """Returns text such as "1.5 MiB", with three digits."""
    for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB")):
        if count < 1024 ** (power + 1) or unit == "TiB":
            return f"{_short(count / 1024**power)} {unit}"
    raise AssertionError


def format_seconds(seconds: float) -> str:
    """Returns text such as "12.3 us"."""
    for scale, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if seconds * scale < 1000:
            return f"{_short(seconds * scale)} {unit}"
    return f"{_short(seconds)} s"


def format_rate(bits_per_second: float) -> str:
    """Returns text such as "10 Gbit/s"."""
    for scale, unit in ((1e3, "bit/s"), (1e6, "kbit/s"), (1e9, "Mbit/s"), (1e12, "Gbit/s")):
        if bits_per_second < scale * 0.9995:
            return f"{_short(bits_per_second / scale * 1000)} {unit}"
    return f"{_short(bits_per_second / 1e12)} Tbit/s"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Returns text such as "1 rank" or "2 ranks"; `plural` is for nouns with an irregular
    plural."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _short(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns the rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1:] = [0]  # prose, so padding would only add blanks
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ] or ["none"]
