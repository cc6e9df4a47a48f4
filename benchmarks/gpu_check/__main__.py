"""Checks on this machine everything that needs an NVIDIA GPU, and writes a report.

    python -m benchmarks.gpu_check                    build, check, measure; gpu-check.md
    python -m benchmarks.gpu_check --kernels          the kernels alone
    python -m benchmarks.gpu_check --build-only       compile only, on machines without a GPU

The first part runs the kernels on the first GPU. For every codec with kernels, also behind a
rotation, it compares bytes, residuals and decoded values with those of the CPU. The cases have
tails, and blocks of zeros, tiny, huge and non-finite values. It measures the speed of encoding,
with and without a residual, and of decoding 64 Mi elements. Speeds are GB/s of bytes read and
written, and shares of the speed of a copy within the device's memory. It also times a bucket of 160
parameters of 4 to 256 Ki elements, with a launch per parameter and with launches for many. Finally
it runs compute-sanitizer. This part needs nvcc, g++ and CMake.

The second part runs ranks that share the existing GPUs. It needs PyTorch for CUDA, and this package
with its CUDA library (`make cuda`). It runs tests/python/test_gpu_*.py, compares random sequences
of operations with exact arithmetic, and times an allreduce and gloo's. Tests and sequences also run
with NCCL if it supports several ranks per GPU, which it does from 2.30.3 on. If PyTorch has an
older one, `pip install nvidia-nccl-cu13` and LD_PRELOAD its libnccl.so.2.

The status is 0 if all checks succeed, 1 if one fails, and 2 without a device.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEEDED = {"cmake": "CMake 3.22 or newer", "g++": "g++ 12 or newer"}
NO_DEVICE = 2
SHARE = "of a copy"
SANITIZED = ("fp16", "int8", "int4", "int4+h", "onebit", "topk:40", "randomk:10", "lossless")
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}  # makes NCCL accept several ranks per GPU
LAST_LINES = 30  # lines of the output of a part in the report
COLUMNS = ("codec", "cases", "differ", "encode", SHARE, "with residual", SHARE, "decode", SHARE)


def build(folder: Path) -> Path:
    """Builds the program in `folder` and returns its path. Exits with the tool that is missing."""
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
    """Returns the report as Markdown."""
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


def bucket_table(rows: list[dict]) -> str:
    """Returns the report on buckets as Markdown, in microseconds. The columns "each" are for a
    launch per parameter."""
    if not rows:
        return ""
    columns = ("codec", "same", "encode", "each", "decode", "each")
    lines = [
        f"\nBuckets of {rows[0]['parameters']} parameters, with a residual, added as decoded:\n",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
    ]
    for row in rows:
        cells = [row["bucket"], "yes" if row["same"] else "NO"]
        for key in ("encode", "encode_each", "decode", "decode_each"):
            cells.append(f"{row[key]:.0f} us")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def sanitized(program: Path) -> Iterator[tuple[str, bool, str]]:
    """Yields the result of each tool of compute-sanitizer on the kernels, without those that take
    minutes."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        yield "compute-sanitizer", True, "not run: it is not there"
        return
    for name in ("memcheck", "racecheck"):
        command = [tool, "--tool", name, "--error-exitcode", "1", str(program), "--no-speed"]
        yield run(name, [*command, *SANITIZED])


def holds(statement: str, variables: Mapping[str, str]) -> bool:
    """Returns True if the statement about `info`, the result of info_with_devices(), holds in a new
    process."""
    look = (
        "import torch; from torch_ringdist import _inspect; "
        f"info = _inspect.info_with_devices(); assert torch.cuda.is_available() and {statement}"
    )
    done = subprocess.run(
        [sys.executable, "-c", look],
        cwd=ROOT,
        capture_output=True,
        env={**os.environ, **variables},
    )
    return done.returncode == 0


def of_ranks() -> Iterator[tuple[str, bool, str]]:
    """Yields the parts that need PyTorch and this package."""
    if not holds("info['cuda']['state'] == 'ok'", {}):
        yield (
            "ranks",
            True,
            "not run: PyTorch for CUDA, or this package with `make cuda`, is not there",
        )
        return
    tests = sorted(str(path) for path in (ROOT / "tests" / "python").glob("test_gpu_*.py"))
    python = [sys.executable, "-m"]
    yield run("tests", [*python, "pytest", "-q", "-rs", "--no-header", *tests])
    sequences = ["--device", "cuda", "--sequences", "200"]
    yield run("random sequences", [*python, "tests.differential", *sequences])
    for ranks in ("2", "4"):
        yield run(f"{ranks} ranks", [*python, "benchmarks.gpu_check.speed", "--ranks", ranks])
    if not holds("dict(info['cuda']['ways'])['two on one'].startswith('by NCCL')", SHARED):
        yield "ranks by NCCL", True, "not run: NCCL is not there, or older than 2.30.3"
        return
    yield run("tests by NCCL", [*python, "pytest", "-q", "-rs", "--no-header", *tests], SHARED)
    sequences += ["--no-tags"]
    yield run("random sequences by NCCL", [*python, "tests.differential", *sequences], SHARED)


def run(
    name: str, command: list[str], variables: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, bool, str]:
    """Runs a part. Returns its name, its success, and the end of its output."""
    print(f"{name}: {' '.join(command)}", flush=True)
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    lines = (done.stdout + done.stderr * (done.returncode != 0)).replace("\r", "\n").split("\n")
    last = "\n".join(lines[-LAST_LINES:]).strip()
    print(last, flush=True)
    return name, done.returncode == 0, last


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-check.md"), metavar="FILE")
    parser.add_argument("--kernels", action="store_true", help="nothing that needs PyTorch")
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
    kernels, buckets = ([row for row in rows[1:] if kind in row] for kind in ("codec", "bucket"))
    text, good = table(rows[0], kernels) + bucket_table(buckets), running.returncode == 0
    for name, well, last in chain(sanitized(program), () if args.kernels else of_ranks()):
        text += f"\n## {name}{'' if well else ': FAILED'}\n\n{last}\n"
        good &= well
        args.out.write_text(text)
    print(f"written: {args.out}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
