"""``python -m torch_ringdist codecs``: measures ratio, error and speed of the codecs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch_ringdist import _native
from torch_ringdist._progress_bar import Bar

_COLUMNS = {
    "codec": "codec",
    "wire_ratio": "ratio",
    "relative_error": "error",
    "encode": "encode",
    "encode_with_residual": "with residual",
    "decode": "decode",
    "decode_add": "decode-add",
}
_MOST_SECONDS = 60  # Ctrl-C has no effect while a codec is timed
_NOTE = (
    "ratio: fp32 bytes to bytes on the wire. error: |x - Q(x)| / |x|, x normally distributed. "
    "Speeds: GB/s of fp32 on one core, from memory; beside them, as a share, a plain memory copy "
    "timed in turns with them."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command to its parser."""
    add = parser.add_argument
    add("codecs", nargs="*", metavar="CODEC", help="as int4, topk:0.01, onebit+h; default: all")
    add(
        "--mib",
        type=int,
        metavar="N",
        help="fp32 data to encode, up to a fifth of the available memory (default: 64)",
    )
    add(
        "--seconds",
        type=float,
        default=0.5,
        help=f"for each codec, up to {_MOST_SECONDS} (default: 0.5)",
    )
    add("--json", action="store_true", help="print JSON instead of a table")
    parser.description = (
        "Time the codecs on one core of this machine, on normally distributed data. " + _NOTE
    )


def run(args: argparse.Namespace) -> None:
    """Measures the requested codecs on this machine and prints the figures.

    Raises:
        ValueError: an unknown codec, or an option out of its range.
    """
    most = available_mib() // 5  # the results of coding take several times the memory of the data
    mib = max(1, min(64, most)) if args.mib is None else args.mib
    if args.mib is not None and not 1 <= mib <= most:
        raise ValueError(f"--mib: expected 1 to {most}, a fifth of the available memory, got {mib}")
    if not 0 < args.seconds <= _MOST_SECONDS:  # also rejects NaN
        raise ValueError(
            f"--seconds: expected more than 0, at most {_MOST_SECONDS}, got {args.seconds}"
        )
    native = _native.load()
    specs = args.codecs or [spec for spec, _ in native.codec_examples()]
    if pairs := [spec for spec in specs if ">" in spec]:
        raise ValueError(f"{pairs[0]!r} is a pair; name its codecs one by one to time them")
    widths = [max(map(len, [*specs, "codec"])), 5, 7, *[13] * 4]

    def show(cells: Iterable[str]) -> None:  # flushed, as each line takes long
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(line.rstrip(), flush=True)

    figures = []
    bar = Bar()
    if not args.json:
        show(_COLUMNS.values())
    for i, spec in enumerate(specs):
        bar.show("codecs", i / len(specs), spec)
        figures.append(native.measure_codec(spec, mib << 18, args.seconds))
        bar.clear()
        if not args.json:
            show(_cell(key, figures[-1]) for key in _COLUMNS)
    print(json.dumps(figures, indent=2) if args.json else f"\n{_NOTE}")


def available_mib() -> int:
    """Returns the memory that processes can get without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) >> 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


# Formats one figure of a codec; speeds also as a share of the speed of a memory copy.
def _cell(key: str, row: dict[str, Any]) -> str:
    value = row[key]
    if key == "codec":
        return value
    if key == "wire_ratio":
        return f"{value:.2f}"
    if key == "relative_error":
        return f"{value:.1e}"
    return f"{value:.2f} ({value / row['memory_copy']:.2f})"
