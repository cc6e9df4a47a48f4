"""Functional collectives, eager and in functions that torch.compile has compiled."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from support.rank import Ranks, same_bits

SIZES = [2, 3]


def given(rank: int, count: int = 6, seed: int = 0) -> torch.Tensor:
    """Returns the input of rank `rank`: integers in fp32, [count, 2]."""
    generator = torch.Generator().manual_seed(seed * 100 + rank)
    return torch.randint(-9, 10, (count, 2), generator=generator).float()


def everyone(count: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.stack([given(rank, count, seed) for rank in range(dist.get_world_size())])


def _plain(seed: int) -> None:
    rank, size, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    mine, all_of = given(rank, 6, seed), everyone(6, seed)
    for op, expected in {
        "sum": all_of.sum(0),
        "avg": all_of.sum(0) / size,
        "min": all_of.amin(0),
        "max": all_of.amax(0),
    }.items():
        torch.testing.assert_close(funcol.all_reduce(mine, op, world).wait(), expected)
    same_bits(mine, given(rank, 6, seed), "the input")
    for root in range(size):
        same_bits(funcol.broadcast(mine, root, world).wait(), all_of[root], "broadcast")
    gathered = {dim: funcol.all_gather_tensor(mine, dim, world) for dim in (0, 1)}
    same_bits(gathered[0] * 1, all_of.flatten(0, 1), "all_gather_tensor")  # using it waits for it
    same_bits(gathered[1] * 1, torch.cat(list(all_of), 1), "all_gather_tensor of dimension 1")
    scattered = funcol.reduce_scatter_tensor(mine, "sum", 0, world).wait()
    same_bits(scattered, all_of.sum(0).chunk(size)[rank], "reduce_scatter_tensor")
    following = [(r + 1) % size for r in range(size)]
    moved = funcol.permute_tensor(mine.flatten(), following, world).wait()
    same_bits(moved, all_of[(rank - 1) % size].flatten(), "permute_tensor")


@pytest.mark.parametrize("size", SIZES)
def test_functional_collectives(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_plain, seed)


def _all_to_all(seed: int) -> None:
    """Sends r + 1 rows from rank r to rank 0, and one row to each other rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    inputs = [given(r, r + size, seed) for r in range(size)]
    sent = [rank + 1] + [1] * (size - 1)
    got = [r + 1 if rank == 0 else 1 for r in range(size)]
    out = funcol.all_to_all_single(inputs[rank], got, sent, dist.group.WORLD).wait()
    begin = [0 if rank == 0 else r + rank for r in range(size)]
    parts = [x[b : b + n] for x, b, n in zip(inputs, begin, got, strict=True)]
    same_bits(out, torch.cat(parts), "all_to_all_single")


@pytest.mark.parametrize("size", SIZES)
def test_all_to_all_of_uneven_parts(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_all_to_all, seed)


def _coalesced(seed: int) -> None:
    rank, size, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    counts = (6, 12, 0)
    mine = [given(rank, count, seed) for count in counts]
    all_of = [everyone(count, seed) for count in counts]
    reduced = funcol.all_reduce_coalesced(mine, "sum", world)
    gathered = funcol.all_gather_into_tensor_coalesced(mine, world)
    scattered = funcol.reduce_scatter_tensor_coalesced(mine, "sum", [0] * len(mine), world)
    for i, rows in enumerate(all_of):
        same_bits(reduced[i] * 1, rows.sum(0), f"all_reduce of tensor {i}")
        same_bits(gathered[i] * 1, rows.flatten(0, 1), f"all_gather of tensor {i}")
        part = rows.sum(0).chunk(size)[rank]
        same_bits(scattered[i] * 1, part, f"reduce_scatter of tensor {i}")


@pytest.mark.parametrize("size", SIZES)
def test_lists(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_coalesced, seed)


def _autograd(seed: int) -> None:
    """Checks that the gradient of a gather is a reduce-scatter, and vice versa."""
    rank, size, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    x = given(rank, 6, seed).requires_grad_()
    weights = everyone(6 * size, seed + 1)  # weights of each rank's loss
    out = funcol.all_gather_tensor_autograd(x, 0, world)
    (out * weights[rank]).sum().backward()
    same_bits(x.grad, weights.sum(0).chunk(size)[rank], "gradient of all_gather_tensor")
    x.grad = None
    out = funcol.reduce_scatter_tensor_autograd(x, "sum", 0, world)
    part = 6 // size
    (out * weights[rank, :part]).sum().backward()
    same_bits(x.grad, weights[:, :part].flatten(0, 1), "gradient of reduce_scatter_tensor")


@pytest.mark.parametrize("size", SIZES)
def test_gradients(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_autograd, seed)


@cache
def no_compiler() -> str:
    """Returns the reason why torch.compile cannot generate code here, or "". Runs no collective."""
    import torch._inductor.config

    # The ranks compile one function each, and helper processes would outlive the pool.
    torch._inductor.config.compile_threads = 1
    try:
        torch.compile(lambda x: x * 2 + 1, fullgraph=True)(torch.ones(8))
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _traced(x: torch.Tensor) -> torch.Tensor:
    group = dist.group.WORLD
    total = funcol.all_reduce(x * 2, "sum", group)
    gathered = funcol.all_gather_tensor(torch.relu(x), 0, group)
    part = funcol.reduce_scatter_tensor(gathered + 1, "sum", 0, group)
    return total - part * 3


def _in_place(x: torch.Tensor) -> torch.Tensor:
    """Calls torch.distributed's own functions, which torch.compile turns into functional ones."""
    y = x * 2
    dist.all_reduce(y)
    gathered = torch.empty(y.shape[0] * dist.get_world_size(), y.shape[1])
    dist.all_gather_into_tensor(gathered, y)
    return gathered + 1


FUNCTIONS = {"functional": _traced, "in place": _in_place}


def _compiled(which: str, backend: str) -> str:
    if backend == "inductor" and (problem := no_compiler()):
        return problem
    torch._dynamo.reset()
    function = FUNCTIONS[which]
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for seed in range(3):  # the second and third are not traced again
        x = given(Ranks.rank, 6, seed)
        same_bits(compiled(x) * 1, function(x) * 1, f"{which}, {backend}, call {seed}")
    return ""


@pytest.mark.timeout(300)  # each rank runs a compiler of C++
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("which", FUNCTIONS)
def test_compiled(pools, which: str, backend: str):
    problems = pools(2).run(_compiled, which, backend, timeout=250)
    if any(problems):
        pytest.skip(f"torch.compile cannot run its compiler here: {problems[0]}")
