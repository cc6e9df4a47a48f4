"""FSDP2 (fully_shard) and HSDP must train like one process with all the data."""

from __future__ import annotations

import math
import random

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

STEPS = 3
NAMES = ("replicate", "shard")


def network(seed: int) -> nn.Sequential:
    """Returns a network with 37, 11 and 5 rows, which no number of ranks here divides."""
    torch.manual_seed(seed)
    layers = nn.Linear(20, 37), nn.ReLU(), nn.Linear(37, 11), nn.ReLU(), nn.Linear(11, 5)
    return nn.Sequential(*layers).double()


def data(seed: int, step: int, size: int) -> torch.Tensor:
    """Returns the data of all ranks in a step: fp64 [ranks, 8, 20]."""
    generator = torch.Generator().manual_seed(seed + step)
    return torch.randn(size, 8, 20, generator=generator, dtype=torch.float64)


def sharded(module: nn.Sequential, shape: tuple[int, ...], **settings) -> nn.Sequential:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=NAMES[-len(shape) :])
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **settings)
    return fully_shard(module, mesh=mesh, **settings)


def _trains(shape: tuple[int, ...], settings: dict, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model, alone = sharded(network(seed), shape, **settings), network(seed)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, alone)]
    for step in range(STEPS):
        x = data(seed, step, size)
        model(x[rank]).square().mean().backward()
        alone(x.flatten(0, 1)).square().mean().backward()
        # There are two norms, and the norm of the shards needs an all-reduce.
        norms = [nn.utils.clip_grad_norm_(m.parameters(), 0.1) for m in (model, alone)]
        torch.testing.assert_close(norms[0].full_tensor(), norms[1])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters(), strict=True):
        assert ours.to_local().numel() < theirs.numel() or len(theirs) < size, f"{name}: not split"
        torch.testing.assert_close(ours.full_tensor(), theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)], ids=str)
def test_trains_as_one_process(pools, shape: tuple[int, ...], reshard: bool):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(math.prod(shape)).run(_trains, shape, {"reshard_after_forward": reshard}, seed)


def _halves(shape: tuple[int, ...], seed: int) -> None:
    """Gathers parameters as bf16 and reduces gradients in fp32, and compares with one process."""
    rank, size = dist.get_rank(), dist.get_world_size()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded(network(seed).float(), shape, mp_policy=policy)
    alone = network(seed).bfloat16()
    x = data(seed, 0, size).bfloat16()
    out = model(x[rank])
    assert out.dtype == torch.bfloat16
    out.square().mean().backward()
    expected = [torch.zeros(p.shape) for p in alone.parameters()]
    for part in x:
        gradients = torch.autograd.grad(alone(part).square().mean(), list(alone.parameters()))
        for total, gradient in zip(expected, gradients, strict=True):
            total += gradient.float() / size
    for (name, ours), theirs in zip(model.named_parameters(), expected, strict=True):
        got = ours.grad.full_tensor()
        assert got.dtype == torch.float32, name
        torch.testing.assert_close(got, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2,), (2, 2)], ids=str)
def test_mixed_precision(pools, shape: tuple[int, ...]):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(math.prod(shape)).run(_halves, shape, seed)


def _accumulates(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model, alone = sharded(network(seed), (size,)), network(seed)
    for step in range(2):
        x = data(seed, step, size)
        model.set_requires_gradient_sync(step == 1)
        model(x[rank]).square().mean().backward()
        alone(x.flatten(0, 1)).square().mean().backward()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.full_tensor(), theirs.grad)


def test_gradients_of_two_batches_reduced_once(pools):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(3).run(_accumulates, seed)
