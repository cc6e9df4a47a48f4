"""Helpers of the tests of compression: models with given gradients, and sums over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHAPES = {"big": (70, 90), "row": (5000,), "tiny": (10,), "last": (40, 64)}


class Given(nn.Module):
    """A model where each parameter's gradient is the tensor of its name in the input. Parameters
    without such a tensor have no gradient."""

    def __init__(self, shapes=None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        for name, shape in (shapes or SHAPES).items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape, dtype=dtype)))

    def forward(self, gradients: dict[str, torch.Tensor]) -> torch.Tensor:
        return sum((getattr(self, name) * g).sum() for name, g in gradients.items())


def noise(like: nn.Module, seed: int, dtype: torch.dtype = torch.float32):
    """Returns a gradient for each parameter. Ranks should use different seeds."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(p.shape, generator=random).to(dtype)
        for name, p in like.named_parameters()
        if p.requires_grad
    }


def seeds(seed: int, steps: int) -> range:
    """Returns one seed per step of this rank, different from those of other ranks."""
    return range(seed + 10_000 * dist.get_rank(), seed + 10_000 * dist.get_rank() + steps)


def wrap(module: nn.Module, **settings) -> DistributedDataParallel:
    """Returns DDP with several small buckets, which DDP rebuilds after the first step."""
    return DistributedDataParallel(module, bucket_cap_mb=0.02, **settings)


def step(model: DistributedDataParallel, gradients: dict[str, torch.Tensor], factor: float = 1):
    """Does one synchronised backward pass. Returns the averaged gradients by name."""
    model.zero_grad()
    (model(gradients) * factor).backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.module.named_parameters()
    }


class Ledger:
    """Sums of inputs and outputs in fp64. They must differ by exactly the residuals."""

    def __init__(self) -> None:
        self.given: dict[str, torch.Tensor] = {}
        self.got: dict[str, torch.Tensor] = {}

    def add(self, given: dict[str, torch.Tensor], got: dict[str, torch.Tensor]) -> None:
        """Adds a step. `got` is an average over the group, `given` is this rank's gradient."""
        for book, tensors, weight in (
            (self.given, given, 1.0),
            (self.got, got, float(dist.get_world_size())),
        ):
            for name, tensor in tensors.items():
                book[name] = book.get(name, 0) + tensor.detach().double() * weight

    def error(self, residuals: dict[str, torch.Tensor] | None) -> float:
        """Returns |got + residuals - given| / |given| in the 2-norm on rank 0, and 0 on others."""
        wrong = whole = 0.0
        for name in sorted(self.given):
            given = self.given[name].clone()
            dist.all_reduce(given)
            if residuals is not None:
                got = self.got[name] + residuals.get(name, torch.zeros(())).double()
                wrong += float((got - given).square().sum())
                whole += float(given.square().sum())
        return (wrong / whole) ** 0.5 if whole else 0.0


def refuses(call: Callable[[], object], kind: type[Exception], words: Sequence[str]) -> None:
    """Fails unless `call` raises `kind` with all words in its text."""
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return
    raise AssertionError(f"nothing was raised, expected {kind.__name__} with {words}")
