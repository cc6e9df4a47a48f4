"""Features that PyTorch builds on DDP: ZeroRedundancyOptimizer, post-local SGD, and Join."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.rank import oracle, same_bits
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

SIZES = [2, 3]


def make(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 5)).double()


def loss(model: nn.Module, seed: int, step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + 1000 * step + rank)
    x = torch.randn(6, 10, generator=generator, dtype=torch.float64)
    return model(x).square().mean()


def train_alone(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, step: int) -> None:
    """Makes a step with the data of all ranks in this process."""
    size = dist.get_world_size()
    optimizer.zero_grad()
    for rank in range(size):
        (loss(model, seed, step, rank) / size).backward()
    optimizer.step()


def close(model: nn.Module, alone: nn.Module) -> None:
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def _zero(views: bool, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    module, alone = make(seed), make(seed)
    model = DistributedDataParallel(module)
    ours = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, parameters_as_bucket_view=views, lr=0.01
    )
    theirs = torch.optim.Adam(alone.parameters(), lr=0.01)
    for step in range(3):
        ours.zero_grad()
        loss(model, seed, step, rank).backward()
        ours.step()
        train_alone(alone, theirs, seed, step)
        close(module, alone)
    held = sum(len(state) > 0 for state in ours.optim.state.values())
    assert held < len(list(alone.parameters())), "this rank has the states of all parameters"
    ours.consolidate_state_dict(to=size - 1)  # sends the parts to one rank as objects
    if rank == size - 1:
        expected = theirs.state_dict()["state"]
        for index, state in ours.state_dict()["state"].items():
            torch.testing.assert_close(state["exp_avg"], expected[index]["exp_avg"])
        assert len(ours.state_dict()["state"]) == len(expected)
    dist.barrier()


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_zero_redundancy_optimizer(pools, size: int, views: bool):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_zero, views, seed)


def _post_local(seed: int) -> None:
    """Makes two steps together, then local steps with an average after every second one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    subgroup, _ = dist.new_subgroups(group_size=1)
    module = make(seed)
    model = DistributedDataParallel(module)
    state = PostLocalSGDState(dist.group.WORLD, subgroup, start_localSGD_iter=2)
    model.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    ours = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
    everyone = [make(seed) for _ in range(size)]
    for step in range(6):
        ours.zero_grad()
        loss(model, seed, step, rank).backward()
        ours.step()
        local_step(everyone, seed, step)
        if step >= 2 and step % 2 == 0:
            average(everyone)
        close(module, everyone[rank])
        apart = not torch.equal(everyone[0][0].weight, everyone[1][0].weight)
        assert apart == (step in (3, 5)), "the reference does not do what it says"


def local_step(everyone: list[nn.Module], seed: int, step: int) -> None:
    """Simulates a step of all ranks in one process: together in the first two, then each alone."""
    for rank, module in enumerate(everyone):
        module.zero_grad()
        loss(module, seed, step, rank).backward()
    for parameters in zip(*(m.parameters() for m in everyone), strict=True):
        gradients = torch.stack([p.grad for p in parameters])
        for p, own in zip(parameters, gradients, strict=True):
            p.data -= 0.1 * (gradients.mean(0) if step < 2 else own)


def average(everyone: list[nn.Module]) -> None:
    for parameters in zip(*(m.parameters() for m in everyone), strict=True):
        mean = torch.stack([p.data for p in parameters]).mean(0)
        for p in parameters:
            p.data.copy_(mean)


@pytest.mark.parametrize("size", SIZES)
def test_post_local_sgd(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_post_local, seed)


class Sum(Joinable):
    """Sums the inputs of ranks that still have data."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: list[int] = []
        self.last: int | None = None

    def add(self, value: int) -> None:
        Join.notify_join_context(self)
        total = torch.tensor(value)
        dist.all_reduce(total)
        self.totals.append(int(total))

    def join_hook(self, **_: object) -> JoinHook:
        return Silent(self)

    @property
    def join_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        return dist.group.WORLD


class Silent(JoinHook):
    """The hook of a rank that has no data left."""

    def __init__(self, owner: Sum) -> None:
        self.owner = owner

    def main_hook(self) -> None:
        dist.all_reduce(torch.tensor(0))

    def post_hook(self, is_last_joiner: bool) -> None:
        self.owner.last = dist.get_rank() if is_last_joiner else -1


def _join_sum() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    counter = Sum()
    with Join([counter]):
        for step in range(rank + 1):
            counter.add(10 * step + 1)
    assert counter.totals == [(size - s) * (10 * s + 1) for s in range(rank + 1)], counter.totals
    assert counter.last == (rank if rank == size - 1 else -1)


@pytest.mark.parametrize("size", SIZES)
def test_join_context(pools, size: int):
    pools(size).run(_join_sum)


def _join_zero(seed: int) -> None:
    """Joins DDP and its optimizer together, rank r after r + 1 batches, and compares with gloo.

    One process is no reference, because a joined rank continues to step with its last gradients.
    """
    rank = dist.get_rank()
    modules = []
    for group in (dist.group.WORLD, oracle()):
        modules.append(make(seed))
        model = DistributedDataParallel(modules[-1], process_group=group)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, process_group=group, lr=0.1
        )
        with Join([model, optimizer]):
            for step in range(rank + 1):
                optimizer.zero_grad()
                loss(model, seed, step, rank).backward()
                optimizer.step()
    close(*modules)
    assert not torch.equal(modules[0][0].weight, make(seed)[0].weight), "nothing was learnt"
    first = modules[0][0].weight.detach().clone()
    dist.broadcast(first, 0)
    same_bits(modules[0][0].weight.detach(), first, "the same on all ranks")


@pytest.mark.parametrize("size", SIZES)
def test_ddp_and_its_optimizer_join_together(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_join_zero, seed)
