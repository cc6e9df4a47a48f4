"""Features next to a group that shrinks: hooks, other groups, forks, PyTorch's own shrink."""

from __future__ import annotations

import copy
import os
import signal

import pytest
import torch
import torch.distributed as dist
from support.rank import caught, same_bits
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist
from torch_ringdist import ddp

SIZE, VICTIM = 3, 1


def _trained(model: nn.Module) -> DistributedDataParallel:
    """Trains with a hook that has its own group beside the model's."""
    out = DistributedDataParallel(model)
    ddp.compress(out, "powersgd:2")
    for _ in range(3):
        out(torch.ones(4, 64)).sum().backward()
    return out


def _sparse_sum() -> list[float]:
    """Sums a sparse tensor. The second half of the sum goes over a separate group."""
    tensor = torch.sparse_coo_tensor(torch.tensor([[dist.get_rank()]]), torch.ones(1), (SIZE,))
    dist.all_reduce(tensor)
    return tensor.coalesce().to_dense().tolist()


def _go_on() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 32)
    old = _trained(model)
    assert _sparse_sum() == [1.0] * SIZE
    dist.barrier()
    if dist.get_rank() == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    while not caught(dist.all_reduce, torch.ones(1000)):
        pass
    torch_ringdist.shrink()
    error = caught(lambda: old(torch.ones(4, 64)).sum().backward())
    assert error is not None and "torch_ringdist.ddp.compress()" in error.text, error
    gradient = _trained(copy.deepcopy(model)).module.weight.grad
    all_of_them = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, gradient)
    for one in all_of_them:
        same_bits(one, gradient, "the gradients of all ranks")
    assert _sparse_sum() == [1.0] * (SIZE - 1) + [0.0]


def test_groups_that_belong_to_one_that_shrank(fresh_pool):
    pool = fresh_pool(SIZE)
    pool.start(_go_on)
    pool.collect(without=(VICTIM,))


def _in_a_forked_child() -> None:
    dist.barrier()
    child = os.fork()
    if child == 0:
        error = caught(torch_ringdist.shrink)
        os._exit(0 if error is not None and "forked" in error.text else 1)
    assert os.waitpid(child, 0)[1] == 0, "it was not told"
    dist.barrier()


def test_a_forked_child_is_refused(fresh_pool):
    fresh_pool(2).run(_in_a_forked_child)


def _shrink_group(flags: int) -> tuple[int, int] | None:
    """Shrinks like torch.distributed: the caller names the ranks to remove, without agreement."""
    dist.barrier()
    if dist.get_rank() == VICTIM:
        return None
    error = caught(c10d.shrink_group, [7])
    assert error is not None and error.kinds[0] == "ValueError", error
    group = c10d.shrink_group([VICTIM], shrink_flags=flags)
    assert group is dist.group.WORLD
    tensor = torch.arange(1000)
    dist.all_reduce(tensor)
    same_bits(tensor, torch.arange(1000) * 2, "the sum of two")
    dist.barrier()
    return dist.get_rank(), dist.get_world_size()


@pytest.mark.parametrize("flags", [c10d.SHRINK_DEFAULT, c10d.SHRINK_ABORT])
def test_shrink_group_of_torch(fresh_pool, flags: int):
    assert list(fresh_pool(SIZE).run(_shrink_group, flags)) == [(0, 2), None, (1, 2)]
