"""One rank of `python -m benchmarks.horovod`, which times each piece of work in turns.

Rank 0 writes the times of the slowest rank.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import torch_ringdist.horovod as hvd
from benchmarks.horovod.step import network, sgd, step_of
from torch_ringdist.ddp import compress

TENSORS, ELEMENTS = 300, 1024

Work = Callable[[], object]


def single(gloo: dist.ProcessGroup) -> dict[str, Work]:
    """A blocking sum of 8 B."""
    tensor = torch.ones(2)
    return {
        "dist.all_reduce": lambda: dist.all_reduce(tensor),
        "by name": lambda: hvd.allreduce_(tensor, name="single", op=hvd.Sum),
        "gloo": lambda: dist.all_reduce(tensor, group=gloo),
    }


def many(gloo: dist.ProcessGroup) -> dict[str, Work]:
    """300 sums of 4 KiB."""
    tensors = [torch.ones(ELEMENTS) for _ in range(TENSORS)]

    def coalesced() -> None:
        with dist._coalescing_manager(async_ops=True) as manager:
            for one in tensors:
                dist.all_reduce(one)
        manager.wait()

    def of_gloo() -> None:
        works = [dist.all_reduce(one, group=gloo, async_op=True) for one in tensors]
        for work in works:
            work.wait()

    def by_name() -> None:
        handles = [
            hvd.allreduce_async_(one, name=f"many.{i}", op=hvd.Sum) for i, one in enumerate(tensors)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    return {
        "coalesced": coalesced,
        "grouped, by name": lambda: hvd.grouped_allreduce_(tensors, name="many", op=hvd.Sum),
        "each, by name": by_name,
        "each, gloo": of_gloo,
    }


def training(gloo: dist.ProcessGroup) -> dict[str, Work]:
    """A step of SGD: forward, backward, reduce, update."""
    return {
        "DDP": _by_ddp("none"),
        "DistributedOptimizer": _by_hooks("none"),
        "DDP, int4": _by_ddp("int4"),
        "DistributedOptimizer, int4": _by_hooks("int4"),
    }


def _by_ddp(codec: str) -> Work:
    model = DistributedDataParallel(network())
    if codec != "none":
        compress(model, codec)
    return step_of(model, sgd(model))


def _by_hooks(codec: str) -> Work:
    net = network()
    compression = hvd.Compression.none if codec == "none" else codec
    optimizer = hvd.DistributedOptimizer(
        sgd(net), named_parameters=net.named_parameters(), compression=compression
    )
    return step_of(net, optimizer)


def timeline(_: dist.ProcessGroup) -> dict[str, Work]:
    """A step of SGD by DistributedOptimizer, and one that is recorded."""
    step = _by_hooks("none")
    return {"timeline off": step, "timeline on": step}


@contextlib.contextmanager
def _recorded() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="ringdist_bench_") as folder:
        hvd.start_timeline(str(Path(folder, "timeline.json")))
        hvd.barrier()  # after this, all ranks record
        yield
        hvd.stop_timeline()


# Functions that create the works, and numbers of calls that are timed as one.
PARTS = {
    "single": (single, 200),
    "many": (many, 1),
    "training": (training, 1),
    "timeline": (timeline, 5),
}
# Context managers around works, which are not timed.
WITHIN = {"timeline on": _recorded}


def samples(works: dict[str, Work], calls: int, repetitions: int) -> Iterator[dict[str, float]]:
    """Yields seconds per call for each work in turn, of the slowest rank."""
    for work in works.values():
        work()
    for _ in range(repetitions):
        out = {}
        for name, work in works.items():
            with WITHIN.get(name, contextlib.nullcontext)():
                dist.barrier()
                before = time.perf_counter()
                for _ in range(calls):
                    work()
                seconds = (time.perf_counter() - before) / calls
            taken = torch.tensor(seconds, dtype=torch.double)
            dist.all_reduce(taken, op=dist.ReduceOp.MAX)
            out[name] = taken.item()
        yield out


def idle_share(seconds: float) -> float:
    """Returns the share of a core that this process uses without calls."""
    before = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - before) / seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("ringdist")
    gloo = dist.new_group(backend="gloo")
    hvd.init()
    figures: dict[str, object] = {}
    for part in args.parts:
        make, calls = PARTS[part]
        repetitions = samples(make(gloo), calls, args.repetitions)
        shown = {"desc": part, "leave": False, "disable": hvd.rank() != 0}
        figures[part] = list(tqdm(repetitions, total=args.repetitions, **shown))
    hvd.barrier()
    figures["idle"] = idle_share(3.0)
    if hvd.rank() == 0:
        args.out.write_text(json.dumps(figures))
    hvd.barrier()
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
