"""DTensor: every redistribution from one placement to another, on meshes of one and two
dimensions."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
import torch.distributed as dist
from support.rank import same_bits
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)

SHAPES = [(8, 12), (7, 5), (1, 3)]  # even and uneven parts, and ranks without a part
TARGETS: list[Placement] = [Replicate(), Shard(0), Shard(1)]
REDUCED = [Partial("sum"), Partial("avg"), Partial("max"), Partial("min")]


def numbers(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Returns integers in fp64, so that no order of additions rounds."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=generator).double()


def part_of(tensor: torch.Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]):
    """Returns this rank's part of `tensor`, computed locally. For Partial, the parts sum to it."""
    for dim, placement in enumerate(placements):
        at, size = mesh.get_local_rank(dim), mesh.size(dim)
        if isinstance(placement, Shard):
            parts = tensor.chunk(size, placement.dim)
            tensor = parts[at] if at < len(parts) else tensor.narrow(placement.dim, 0, 0)
        elif isinstance(placement, Partial):
            tensor = share(tensor, placement.reduce_op, at, size)
    return tensor.contiguous()


def share(tensor: torch.Tensor, op: str, at: int, size: int) -> torch.Tensor:
    if op in ("max", "min"):
        return tensor - at if op == "max" else tensor + at
    weight = (
        3 - 2 * size if at == 0 else 2
    )  # weights of all ranks are 1 - 2 * (size - 1), 2, 2, ..., with sum 1
    return tensor * weight * (size if op == "avg" else 1)


def check(mesh: DeviceMesh, whole: torch.Tensor, source, target) -> None:
    what = f"{list(whole.shape)} from {source} to {target}"
    given = DTensor.from_local(
        part_of(whole, mesh, source), mesh, source, shape=whole.shape, stride=whole.stride()
    )
    result = given.redistribute(mesh, target).to_local() * 1  # using the result waits for it
    same_bits(result, part_of(whole, mesh, target), what)
    same_bits(given.full_tensor(), whole, f"full_tensor of {what}")


def _one_dimension(seed: int) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for shape, source, target in itertools.product(SHAPES, TARGETS + REDUCED, TARGETS):
        check(mesh, numbers(shape, seed), (source,), (target,))


@pytest.mark.parametrize("size", [2, 3])
def test_all_pairs_of_placements(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_one_dimension, seed)


def _two_dimensions(shape: tuple[int, int], seed: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    sources = itertools.product([*TARGETS, Partial("sum")], repeat=2)
    for source, target in itertools.product(sources, itertools.product(TARGETS, repeat=2)):
        check(mesh, numbers(shape, seed), source, target)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_pairs_on_a_mesh_of_2_by_2(pools, shape: tuple[int, int]):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(4).run(_two_dimensions, shape, seed)


def _distribute(seed: int) -> None:
    """Checks that distribute_tensor uses rank 0's values, whatever the other ranks pass."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for shape, target in itertools.product(SHAPES, TARGETS):
        whole = numbers(shape, seed)
        given = whole if dist.get_rank() == 0 else torch.zeros_like(whole)
        result = distribute_tensor(given, mesh, [target])
        same_bits(result.to_local(), part_of(whole, mesh, (target,)), f"{shape} as {target}")


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.check
def test_distribute_tensor(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_distribute, seed)


def _gradients(seed: int) -> None:
    """Multiplies split matrices and differentiates. The gradient of a redistribution is another
    one."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    a, b = numbers((6, 7), seed).requires_grad_(), numbers((7, 4), seed + 1).requires_grad_()
    x = distribute_tensor(a.detach(), mesh, [Shard(1)]).requires_grad_()
    y = distribute_tensor(b.detach(), mesh, [Shard(0)]).requires_grad_()
    product = (x @ y).redistribute(mesh, [Shard(0)])  # x @ y is a sum that is still distributed
    product.square().sum().backward()
    (a @ b).square().sum().backward()
    for actual, expected in ((product, a @ b), (x.grad, a.grad), (y.grad, b.grad)):
        torch.testing.assert_close(actual.full_tensor(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_of_a_product(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_gradients, seed)
