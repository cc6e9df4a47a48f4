"""Checks that PyTorch's flight recorder records each operation of ringdist and its end.

    torchrun --nproc-per-node=2 tools/smoke_flight_recorder.py

From torch 2.15 on, every group has a recorder. The script runs operations of all kinds and checks
that each is recorded as completed. Then it lets a group fail and checks the file that the recorder
writes. In 2.14 a recorder has to be attached and records only the begin of operations, which is
checked. Older versions cannot record other backends than their own, and the script only prints
that.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

# True if the recorder is attached automatically, records ends, and separates backends.
COMPLETE = hasattr(distributed_c10d, "_maybe_attach_flight_recorder")
CPU = torch.device("cpu")


def expect(condition: object, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def entries() -> list[dict]:
    apart = {"backend": "ringdist"} if COMPLETE else {}
    return json.loads(c10d._dump_fr_trace_json(**apart))["entries"]


def all_reduce_each(tensors: list[torch.Tensor]) -> dist.Work:
    """Reduces tensors in one call; torch.distributed.all_reduce_coalesced() accepts one dtype
    only."""
    return dist.group.WORLD.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions())


def run_operations(rank: int, size: int) -> list[str]:
    """Runs the operations and returns their recorded names in order."""
    after, before = (rank + 1) % size, (rank - 1) % size
    names = []
    for blocking in (True, False):
        work = dist.all_reduce(torch.ones(1000), async_op=not blocking)
        if work:
            work.wait()
        names.append("all_reduce")
    dist.broadcast(torch.ones(10, 20).t(), 0)  # a result that is copied back
    names.append("broadcast")
    entry = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
    dist.all_reduce(entry)
    names.append("all_reduce")
    world = dist.group.WORLD
    mixed = [torch.ones(4), torch.ones(4, dtype=torch.int64)]  # two ops
    all_reduce_each(mixed).wait()
    names.append("allreduce_coalesced")
    world._start_coalescing(CPU)
    before_region = world._get_backend(CPU)._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(7), async_op=True)
    all_reduce_each(mixed)
    names += [*3 * ["all_reduce"], "allreduce_coalesced"]
    started = world._get_backend(CPU)._get_sequence_number_for_group() - before_region
    expect(started == 0, "the recorder's question has ended a coalescing region")
    world._end_coalescing(CPU).wait()
    batch = [dist.P2POp(dist.irecv, torch.ones(5), before)]
    batch.append(dist.P2POp(dist.isend, torch.ones(5), after))
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    names += ["recv", "send"]
    dist.barrier()
    return [*names, "barrier"]


def check_records(wanted: list[str]) -> None:
    deadline = time.monotonic() + 20  # another thread reports some of them later
    while COMPLETE and any(entry["state"] != "completed" for entry in entries()):
        expect(time.monotonic() < deadline, f"not completed: {entries()}")
        time.sleep(0.01)
    names = [entry["profiling_name"] for entry in entries()]
    kinds = [name.split(" ")[0].split(":")[1] for name in names]
    if not COMPLETE:  # 2.14 records names of families
        wanted = ["allreduce" if "reduce" in name else name for name in wanted]
    expect(kinds == wanted, f"recorded {names}, not {wanted}")
    for entry in entries():
        expect(entry["retired"], f"{entry}")
        expect(not COMPLETE or entry["duration_ms"] > 0, f"{entry}")


def check_failure(rank: int, prefix: str) -> None:
    """Lets rank 0 and the others call different operations; checks that all fail and write a
    file."""
    group = dist.new_group(timeout=timedelta(seconds=20))
    try:
        dist.all_reduce(torch.ones(5 if rank == 0 else 6), group=group)
    except dist.DistBackendError as error:
        expect("sizes differ" in str(error) or "elements" in str(error), str(error))
    else:
        raise AssertionError("a mismatch was not noticed")
    with open(f"{prefix}{rank}", "rb") as file:  # complete when the call has raised
        trace = pickle.load(file)
    last = trace["entries"][-1]
    expect(last["profiling_name"] == "ringdist:all_reduce", f"{last}")
    expect(last["state"] == "scheduled" and not last["retired"], f"{last}")
    expect(any("check_failure" in frame["name"] for frame in last["frames"]), f"{last}")


def main() -> int:
    if "RANK" not in os.environ:
        print(f"launch me with: torchrun --nproc-per-node=2 {sys.argv[0]}", file=sys.stderr)
        return 2
    if not hasattr(c10d, "FlightRecorderHook"):
        print(f"torch {torch.__version__} has no flight recorder for other backends than its own")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(folder, "trace_")
        dist.init_process_group("ringdist", timeout=timedelta(seconds=40))
        rank, size = dist.get_rank(), dist.get_world_size()
        attached = None if COMPLETE else c10d.FlightRecorderHook.attach(dist.group.WORLD)
        names = run_operations(rank, size)
        check_records(names)
        if COMPLETE:
            check_failure(rank, prefix)
        else:
            attached.remove()
        dist.destroy_process_group()
    if rank == 0:
        failure = " and a failure" if COMPLETE else ""
        print(f"{len(names)} operations{failure} recorded, torch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
