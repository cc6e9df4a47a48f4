"""Times an allreduce of CUDA tensors by ranks that share the GPUs of this machine.

    python -m benchmarks.gpu_check.speed                      2 ranks, 64 MiB
    python -m benchmarks.gpu_check.speed --ranks 4 --mib 16

The contenders take turns of one round. They are gloo, ringdist by way of the host, and ringdist
with a codec. Two more are bounds: `copies` moves the bytes from the device into pinned memory and
back, and `cpu` is ringdist's allreduce of these bytes in host memory. A sample is the time of the
slowest rank, from the call until the device has the result.

NCCL takes part if each rank can have its own GPU. From NCCL 2.30.3 on, it also does with
NCCL_MULTI_RANK_GPU_ENABLE=1. The benchmark needs this package, and a PyTorch for CUDA.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import torch_ringdist
from benchmarks import report
from benchmarks.ranks import SpinBarrier, launch

WARM_UP = 3  # rounds


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check.speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ranks", type=int, default=2, metavar="N", help="default: 2")
    add("--mib", type=int, default=64, metavar="N", help="of float32 (default: 64)")
    add("--rounds", type=int, default=30, metavar="N", help="default: 30")
    add("--codecs", nargs="*", default=["int8", "int4"], metavar="CODEC")
    add("--json", type=Path, metavar="FILE", help="also write all samples there, in nanoseconds")
    args = parser.parse_args()
    report.require_at_least(parser, args, ranks=2, mib=1, rounds=1)
    return args


def contenders(rank: int, args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Returns the contenders by name, as calls that return before the device has finished."""
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    count = args.mib * report.MIB // 4
    there = torch.randn(count, device=device)
    here = torch.randn(count)
    pinned = torch.empty(count, pin_memory=True)
    gloo = dist.new_group(backend="gloo")
    host = dist.new_group(backend="ringdist", pg_options=torch_ringdist.Options(device_path="host"))

    def copies() -> None:
        pinned.copy_(there, non_blocking=True)
        there.copy_(pinned, non_blocking=True)

    out: dict[str, Callable[[], Any]] = {
        "copies": copies,
        "cpu": lambda: dist.all_reduce(here, dist.ReduceOp.AVG, group=host),
        "gloo": lambda: dist.all_reduce(there, group=gloo),  # gloo has no AVG
        "ringdist": lambda: dist.all_reduce(there, dist.ReduceOp.AVG, group=host),
    }
    for codec in args.codecs:
        out[f"ringdist {codec}"] = lambda codec=codec: torch_ringdist.all_reduce(
            there, dist.ReduceOp.AVG, group=host, codec=codec
        )
    shared = os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
    if shared or torch.cuda.device_count() >= dist.get_world_size():
        nccl = dist.new_group(
            backend="ringdist", pg_options=torch_ringdist.Options(device_path="nccl")
        )
        out["ringdist by NCCL"] = lambda: dist.all_reduce(there, dist.ReduceOp.AVG, group=nccl)
    return out


def run_rank(
    rank: int, world: int, port: int, barrier: Path, args: argparse.Namespace, out: Path
) -> None:
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("ringdist", init_method=address, rank=rank, world_size=world)
    start = SpinBarrier(barrier, rank, world)
    calls = contenders(rank, args)
    samples: dict[str, list[int]] = {name: [] for name in calls}
    for round in range(-WARM_UP, args.rounds):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start.wait()
            begin = time.perf_counter_ns()
            call()
            torch.cuda.synchronize()
            took = torch.tensor([time.perf_counter_ns() - begin])
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if round >= 0:
                samples[name].append(int(took))
    if rank == 0:
        out.write_text(json.dumps(samples))
    dist.destroy_process_group()


def table(samples: dict[str, list[int]]) -> str:
    """Returns minimum and median, and speed relative to gloo."""
    lines = ["| | least | median | x gloo, least | x gloo, median |", "|---|---|---|---|---|"]
    base = samples["gloo"]
    for name, times in samples.items():
        least, median = min(times), statistics.median(times)
        ratios = f"{min(base) / least:.2f} | {statistics.median(base) / median:.2f}"
        lines.append(
            f"| {name} | {report.duration(least)} | {report.duration(median)} | {ratios} |"
        )
    return "\n".join(lines)


def main() -> int:
    args = parse_arguments()
    if not torch.cuda.is_available():
        print("no NVIDIA GPU that this PyTorch can use")
        return 2
    out = args.json or Path("build", "gpu-speed.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    launch(args.ranks, run_rank, args, out.resolve())
    name = torch.cuda.get_device_name(0)
    print(f"{name}: {args.ranks} ranks, all_reduce of {args.mib} MiB, {args.rounds} rounds\n")
    print(table(json.loads(out.read_text())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
