"""Compares the int8 codec with torch.quantize_per_tensor on one core, in turns.

    python -m benchmarks.quantize                     64 and 256 MiB of fp32
    python -m benchmarks.quantize --mib 16 --seconds 20

torch is timed twice: the call itself with a given scale, and with torch.aminmax() before it to find
a scale. The codec finds a scale for every 128 elements and writes into existing memory. torch
allocates its output in every call. At 256 MiB these are new pages, which the system must clear.

Speeds are GB/s of fp32 read, beyond the cache. The report has medians of turns, and the range from
slowest to fastest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import torch
from tqdm import tqdm

from torch_ringdist import _native, _units

LEAST_MIB = 8  # smaller buffers fit into caches
TURN = 0.25  # seconds
TURN_CALLS = 3  # least number of torch's calls in a turn


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantize",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--mib", type=int, nargs="+", default=[64, 256], metavar="N", help="default: 64 256")
    add("--seconds", type=float, default=10, help="for each size (default: 10)")
    args = parser.parse_args()
    if min(args.mib) < LEAST_MIB:
        parser.error(f"--mib: {min(args.mib)}: expected at least {LEAST_MIB}")
    if not args.seconds > 0:
        parser.error(f"--seconds: {args.seconds}: expected more than 0")
    return args


def gigabytes_per_second(call: Callable[[], object], size: int) -> float:
    """Returns the speed of calls that each read `size` bytes, repeated for the time of a turn."""
    calls, start = 0, time.perf_counter()
    while calls < TURN_CALLS or time.perf_counter() - start < TURN:
        call()
        calls += 1
    return calls * size / (time.perf_counter() - start) / 1e9


def measure(mib: int, seconds: float) -> dict[str, list[float]]:
    """Returns GB/s of each turn by contender."""
    x = torch.randn(mib << 18)
    scale = float(x.abs().max()) / 127

    def given() -> torch.Tensor:
        return torch.quantize_per_tensor(x, scale, 0, torch.qint8)

    def found() -> torch.Tensor:
        low, high = torch.aminmax(x)
        return torch.quantize_per_tensor(x, max(-float(low), float(high)) / 127, 0, torch.qint8)

    contenders = {
        "ringdist int8": lambda: _native.load().measure_codec("int8", x.numel(), TURN)["encode"],
        "torch, scale given": lambda: gigabytes_per_second(given, x.nbytes),
        "torch, scale found": lambda: gigabytes_per_second(found, x.nbytes),
    }
    turns: dict[str, list[float]] = {name: [] for name in contenders}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(turns["ringdist int8"]) < 3:
        for name, contender in contenders.items():
            turns[name].append(contender())
    return turns


def report(mib: int, turns: dict[str, list[float]]) -> list[tuple[str, ...]]:
    """Returns one row per contender."""
    ours = statistics.median(turns["ringdist int8"])
    rows = []
    for name, values in turns.items():
        middle = statistics.median(values)
        spread = f"{min(values):.1f} .. {max(values):.1f}"
        rows.append((f"{mib} MiB", name, f"{middle:.1f}", spread, f"{ours / middle:.2f}"))
    return rows


def main() -> int:
    args = parse_arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch warns that its quantization is deprecated
    rows: list[tuple[str, ...]] = [("fp32", "", "GB/s", "least .. most", "ours / it")]
    for mib in tqdm(args.mib, unit="size", leave=False, disable=None):
        rows += report(mib, measure(mib, args.seconds))
    print("\n".join(_units.table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
