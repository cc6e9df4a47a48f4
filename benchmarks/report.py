"""Formats sizes and times, parses sizes, and describes the machine, for reports of benchmarks."""

from __future__ import annotations

import argparse
import os
import platform
import time
from importlib import metadata
from pathlib import Path

MIB = 1 << 20


def duration(ns: float) -> str:
    if ns < 1e6:
        return f"{ns / 1e3:.1f} us" if ns < 1e5 else f"{ns / 1e3:.0f} us"
    return f"{ns / 1e6:.2f} ms" if ns < 1e8 else f"{ns / 1e6:.0f} ms"


def size_text(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_size(text: str) -> int:
    """Returns the bytes that a size on the command line stands for."""
    size = _with_unit(text, {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30})
    if size % 4 or size == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a multiple of 4, as 8, 64K or 16M")
    return size


def parse_count(text: str) -> int:
    """Returns the number that a count on the command line stands for, such as 500, 100K or 10M. K
    is a thousand and M a million."""
    count = _with_unit(text, {"K": 1_000, "M": 1_000_000})
    if count == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, as 500, 100K or 10M")
    return count


def _with_unit(text: str, units: dict[str, int]) -> int:
    """Returns a whole number times the unit that may follow it; 0 for any other text."""
    unit = units.get(text[-1:].upper(), 1)
    number = text[:-1] if unit > 1 else text
    return int(number) * unit if number.isdigit() else 0


def require_at_least(
    parser: argparse.ArgumentParser, args: argparse.Namespace, **least: float
) -> None:
    """Exits with an error that names the first argument below its minimum."""
    for name, smallest in least.items():
        if getattr(args, name) < smallest:
            parser.error(f"--{name}: {getattr(args, name)}: expected at least {smallest}")


def machine() -> dict:
    """Returns facts about this machine that readers need to compare figures."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "torch": metadata.version("torch"),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
