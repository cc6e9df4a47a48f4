"""Formats info() as text for people and as JSON for programs."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torch_ringdist import _devices_text, _inspect
from torch_ringdist._units import table

# Maps keys of info() to the column names of their rows. They are the JSON keys, and their order is
# that of the table.
_TABLES = {
    "transports": ("name", "description", "state"),
    "algorithms": ("name", "description"),
    "codecs": ("name", "description"),
    "limits": ("name", "value", "meaning"),
    "variables": ("name", "value", "default", "meaning", "origin"),
}

# Codec syntax that is not the name of a codec alone.
_MORE_CODECS = (
    ("NAME+h", "rotates each block first, which evens out large values: int4+h"),
    ("A>B", "A for contributions, B for their sums: topk:10>int8"),
    ("powersgd:RANK", "of ddp.compress only: matrices by their approximation of that rank"),
    ("auto", "of ddp.compress only: none, the gentlest that hides communication, or powersgd:4"),
)


def as_json(info: dict[str, Any]) -> str:
    """Returns `info` as JSON, with table rows as objects, and the running versions."""
    out = {**info, "running": {"torch": torch.__version__, "python": platform.python_version()}}
    for key, columns in _TABLES.items():
        out[key] = [dict(zip(columns, row, strict=True)) for row in info[key]]
    return json.dumps(out, indent=2)


def as_text(info: dict[str, Any]) -> str:
    """Returns `info` as aligned text with a paragraph per subject."""
    ucx = info["ucx"]
    loaded = f"{ucx['version']} ({ucx['origin']}) {ucx['path']}" if ucx["path"] else ucx["origin"]
    head = table(
        [
            ("torch_ringdist", info["version"]),
            ("built for torch", f"{info['torch']} (running {torch.__version__})"),
            ("Python", platform.python_version()),
            ("UCX", loaded),
            ("CUDA", _cuda_text(info["cuda"])),
            ("operations", ", ".join(info["operations"])),
        ]
    )
    transports = [(name, state, text) for name, text, state in info["transports"]]
    variables = [
        (name, value or "-", origin, f"{meaning} (default: {default or 'empty'})")
        for name, value, default, meaning, origin in info["variables"]
    ]
    return "\n\n".join(
        [
            "\n".join(head),
            "\n  ".join(["GPUs", *_devices_text.lines(info["gpus"], info["cuda"])]),
            _section("transports", transports),
            _section("algorithms", info["algorithms"]),
            _section("codecs", [*info["codecs"], *_MORE_CODECS]),
            _section("limits", info["limits"]),
            _section("variables", variables),
            _section(f"costs, {info['costs']['origin']}", _cost_rows(info["costs"])),
        ]
    )


# Returns a line on the CUDA kernels of the build and the devices found.
def _cuda_text(cuda: dict[str, Any]) -> str:
    if not cuda["built_for"]:
        if not Path(__file__).with_name("libringdist_cuda.so").exists():
            return "not built; where nvcc is, `make cuda` or RINGDIST_CUDA=ON at the build does so"
        return str(cuda["state"])
    devices = [f"{name} ({capability})" for name, capability, *_ in cuda.get("devices", ())]
    found = ", ".join(devices) or cuda["state"]
    return f"kernels for {cuda['built_for']}; {found}"


# Returns a table row per cost constant.
def _cost_rows(costs: dict[str, Any]) -> list[tuple[str, ...]]:
    keys = costs["inside"]
    rows = [("", "inside hosts", "between")]
    return rows + [(key, f"{costs['inside'][key]:g}", f"{costs['between'][key]:g}") for key in keys]


# Returns the title and the indented table.
def _section(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join([title, *("  " + line for line in table(rows))])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command ``info`` to its parser."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(args: argparse.Namespace) -> None:
    """Prints what this build can do, and how it is set. Raises as torch_ringdist.info()."""
    info = _inspect.info_with_devices()
    print(as_json(info) if args.json else as_text(info))
