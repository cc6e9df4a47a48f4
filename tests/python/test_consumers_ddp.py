"""DistributedDataParallel in all its modes must train like one process with all the data."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from support.rank import same_bits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIZES = [2, 3]
STEPS = 4


class Branches(nn.Module):
    """A model with two branches between a shared beginning and end, and a layer without use."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.end = nn.Linear(20, 40), nn.Linear(40, 3)
        self.branches = nn.ModuleList([nn.Linear(40, 40), nn.Linear(40, 40)])
        self.unused = nn.Linear(40, 40)

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        x = torch.relu(self.begin(x))
        return self.end(torch.relu(self.branches[which](x)))


def make(seed: int) -> Branches:
    torch.manual_seed(seed)
    return Branches().double()


def data(seed: int, step: int, rank: int) -> torch.Tensor:
    """Returns the data of rank `rank` in a step: fp64 [8, 20]."""
    generator = torch.Generator().manual_seed(seed + 1000 * step + rank)
    return torch.randn(8, 20, generator=generator, dtype=torch.float64)


def wrap(module: nn.Module, **settings) -> DistributedDataParallel:
    """Returns DDP with several small buckets, which it rebuilds after a step."""
    return DistributedDataParallel(module, bucket_cap_mb=0.01, **settings)


def close(model: nn.Module, alone: nn.Module) -> None:
    """Fails unless the parameters agree except for the order of additions in fp64."""
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(
            ours, theirs, rtol=1e-11, atol=1e-13, msg=lambda text, name=name: f"{name}: {text}"
        )


def step(optimizer: torch.optim.Optimizer, *losses: Callable[[], torch.Tensor]) -> None:
    optimizer.zero_grad()
    for loss in losses:
        loss().backward()
    optimizer.step()


def loss(model: nn.Module, seed: int, at: int, rank: int, which: int) -> torch.Tensor:
    return model(data(seed, at, rank), which).square().mean()


def _trains(settings: dict, differ: bool, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model, alone = wrap(make(seed), **settings), make(seed)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.9) for m in (model, alone)]
    for at in range(STEPS):
        branch = [(r + at) % 2 if differ else 1 for r in range(size)]
        step(optimizers[0], lambda at=at, b=branch: loss(model, seed, at, rank, b[rank]))
        each = (
            lambda r=r, at=at, b=branch: loss(alone, seed, at, r, b[r]) / size for r in range(size)
        )
        step(optimizers[1], *each)
        close(model.module, alone)


MODES = {
    "unused": ({"find_unused_parameters": True}, True),
    "unused, views": ({"find_unused_parameters": True, "gradient_as_bucket_view": True}, True),
    "static graph": ({"static_graph": True}, False),
    "static graph, views": ({"static_graph": True, "gradient_as_bucket_view": True}, False),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES)
def test_trains_as_one_process(pools, size: int, mode: str):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_trains, *MODES[mode], seed)


def _views(seed: int) -> None:
    torch.manual_seed(seed)
    model = wrap(nn.Linear(30, 30).double(), gradient_as_bucket_view=True)
    for at in range(3):  # after the first step DDP rebuilds its buckets
        model.zero_grad(set_to_none=False)
        x = torch.full((1, 30), float(dist.get_rank() + at), dtype=torch.float64)
        model(x).sum().backward()
        mean = sum(r + at for r in range(dist.get_world_size())) / dist.get_world_size()
        expected = torch.full((30, 30), mean, dtype=torch.float64)
        torch.testing.assert_close(model.module.weight.grad, expected)
    bases = {p.grad.untyped_storage().data_ptr() for p in model.parameters()}
    assert len(bases) == 1, "weight and bias share a bucket: no view of it"


def test_gradients_are_views_of_the_bucket(pools):
    pools(2).run(_views, 1)


def _no_sync(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model, alone = wrap(make(seed), find_unused_parameters=True), make(seed)
    with model.no_sync():
        loss(model, seed, 0, rank, 0).backward()
    loss(alone, seed, 0, rank, 0).backward()
    same_bits(model.module.begin.weight.grad, alone.begin.weight.grad, "a gradient of this rank")
    loss(model, seed, 1, rank, 0).backward()
    alone.zero_grad()
    for at in range(2):
        for r in range(size):
            (loss(alone, seed, at, r, 0) / size).backward()
    torch.testing.assert_close(model.module.begin.weight.grad, alone.begin.weight.grad)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.check
def test_no_sync(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_no_sync, seed)


def _join(seed: int) -> None:
    """Gives rank r r + 2 batches. A gradient is divided by the number of all ranks, also
    finished ones."""
    rank, size = dist.get_rank(), dist.get_world_size()
    module, alone = make(seed), make(seed)
    for network in (module, alone):
        network.unused = None
        network.branches[1] = None
    model = wrap(module)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.2) for m in (model, alone)]
    with model.join():
        for at in range(rank + 2):
            step(optimizers[0], lambda at=at: loss(model, seed, at, rank, 0))
    for at in range(size + 1):
        there = range(max(0, at - 1), size)
        each = (lambda r=r, at=at: loss(alone, seed, at, r, 0) / size for r in there)
        step(optimizers[1], *each)
    close(module, alone)


@pytest.mark.parametrize("size", SIZES)
def test_join_with_uneven_inputs(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_join, seed)


class Counter(nn.Module):
    """A model with a buffer that differs from rank to rank."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("count", torch.tensor(100 * dist.get_rank()))
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(int(self.count))
        self.count += dist.get_rank() + 1
        return self.layer(x)


def _buffers(broadcast: bool) -> None:
    model = wrap(Counter(), broadcast_buffers=broadcast)
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
    start, growth = (0, 1) if broadcast else (100 * dist.get_rank(), dist.get_rank() + 1)
    assert model.module.seen == [start, start + growth, start + 2 * growth], model.module.seen


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_buffers(pools, size: int, broadcast: bool):
    pools(size).run(_buffers, broadcast)
