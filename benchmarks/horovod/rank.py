"""One rank of `python -m benchmarks.horovod`: times each piece of work, in turns, and rank 0 writes
what the slowest rank took."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import torch_ringdist.horovod as hvd

TENSORS, ELEMENTS = 300, 1024
LAYERS, WIDTH, BATCH = 80, 353, 16  # 160 tensors, 10 M parameters

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


def _network() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers)


def _step_of(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Work:
    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def training(gloo: dist.ProcessGroup) -> dict[str, Work]:
    """A step of SGD: forward, backward, reduce, update."""
    x = torch.randn(BATCH, WIDTH)
    ddp = DistributedDataParallel(_network())
    net = _network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=1e-3), named_parameters=net.named_parameters()
    )
    return {
        "DDP": _step_of(ddp, torch.optim.SGD(ddp.parameters(), lr=1e-3), x),
        "DistributedOptimizer": _step_of(net, optimizer, x),
    }


def alone(_: dist.ProcessGroup) -> dict[str, Work]:
    """A step of this rank's own, that reduces nothing, beside groups that are idle."""
    x, net = torch.randn(BATCH, WIDTH), _network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    return {"a rank's own step": _step_of(net, optimizer, x)}


PARTS = {"single": (single, 200), "many": (many, 1), "training": (training, 1), "alone": (alone, 1)}


def samples(works: dict[str, Work], calls: int, repetitions: int) -> Iterator[dict[str, float]]:
    """Seconds of a call, of each work in turn: the slowest rank's."""
    for work in works.values():
        work()
    for _ in range(repetitions):
        out = {}
        for name, work in works.items():
            dist.barrier()
            before = time.perf_counter()
            for _ in range(calls):
                work()
            taken = torch.tensor((time.perf_counter() - before) / calls, dtype=torch.double)
            dist.all_reduce(taken, op=dist.ReduceOp.MAX)
            out[name] = taken.item()
        yield out


def idle_share(seconds: float) -> float:
    """Of a core, that this process needs when nothing is called."""
    before = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - before) / seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    parser.add_argument("--repetitions", type=int, default=20)
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
