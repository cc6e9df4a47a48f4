"""Checks the kernels for NVIDIA GPUs on the first one of this machine, and writes a report.

    python -m benchmarks.gpu_check                    build, check, measure; gpu-check.md
    python -m benchmarks.gpu_check --build-only       where there is no GPU: whether it compiles

It needs nvcc, g++ and CMake, and neither torch nor this package. For every codec with kernels, each
also behind a rotation: whether bytes, residuals and decoded values are the CPU's, for tails, for
blocks of zeros, tiny, huge and non-finite values; then the speed of encoding, with and without a
residual, and of decoding 64 Mi elements, as GB/s of what is read and written and as a share of a
copy's within the device's memory, measured beside it. Ends with 0 if all is the same, with 1 if
not, with 2 where there is no device.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEEDED = {"cmake": "CMake 3.22 or newer", "g++": "g++ 12 or newer"}
NO_DEVICE = 2
SHARE = "of a copy"
COLUMNS = ("codec", "cases", "differ", "encode", SHARE, "with residual", SHARE, "decode", SHARE)


def build(folder: Path) -> Path:
    """The program, built in `folder`; exits with what is missing."""
    missing = [text for tool, text in NEEDED.items() if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"gpu_check needs {' and '.join(missing)}")
    configure = ["cmake", "-S", str(HERE), "-B", str(folder)]
    if shutil.which("ninja") and not (folder / "CMakeCache.txt").exists():
        configure += ["-G", "Ninja"]
    jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
    for command in (configure, ["cmake", "--build", str(folder), "--parallel", jobs]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return folder / "gpu_check"


def table(head: dict, rows: list[dict]) -> str:
    """The report, as Markdown."""
    lines = [
        f"# {head['device']}, compute capability {head['capability']}",
        "",
        f"A copy within its memory: {head['copy']:.0f} GB/s, read and written.",
        f"Seed {head['seed']}.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for row in rows:
        cells = [row["codec"], str(row["cases"]), str(row["different"])]
        for key in ("encode", "encode_feedback", "decode"):
            cells += [f"{row[key]:.0f} GB/s", f"{row[key] / head['copy']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\n{row['codec']}: {row['first']}" for row in rows if row["different"]]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-check.md"), metavar="FILE")
    parser.add_argument("--build-only", action="store_true")
    args = parser.parse_args()
    print("building", flush=True)
    program = build(ROOT / "build" / "gpu_check")
    if args.build_only:
        print(f"built: {program}")
        return 0
    rows: list[dict] = []
    with subprocess.Popen([str(program)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            rows.append(json.loads(line))
            print(rows[-1], flush=True)
    if running.returncode == NO_DEVICE or not rows:
        return running.returncode or 1
    args.out.write_text(table(rows[0], rows[1:]))
    print(f"written: {args.out}")
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
