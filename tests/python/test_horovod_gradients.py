"""DistributedOptimizer: sparse gradients that are sent as dense ones, and names of gradients."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.horovod import initialized
from support.rank import same_bits
from torch import nn

import torch_ringdist.horovod as hvd


def _sparse_adam(compression: str | None, groups: int | None) -> None:
    """Uses an optimizer that rejects dense gradients, so they must be sparse again afterwards."""
    settings = {"sparse_as_dense": True, "groups": groups}
    settings |= {"compression": compression} if compression else {}
    with initialized():
        torch.manual_seed(0)
        tables = [nn.Embedding(10, 3, sparse=True) for _ in range(2)]
        weights = [table.weight for table in tables]
        plain = [table.weight.detach().clone().requires_grad_() for table in tables]
        optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(weights, lr=0.1), **settings)
        alone = torch.optim.SparseAdam(plain, lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            alone.zero_grad()
            rows = [torch.tensor([step, 4, 9 - r]) for r in range(hvd.size())]
            for table, weight in zip(tables, plain, strict=True):
                table(rows[hvd.rank()]).sum().backward()
                nn.functional.embedding(torch.cat(rows), weight, sparse=True).sum().backward()
                weight.grad = weight.grad / hvd.size()
            optimizer.step()
            alone.step()
        for mine, weight in zip(weights, plain, strict=True):
            assert mine.grad.is_sparse
            if compression is None:
                torch.testing.assert_close(mine.detach(), weight.detach())


@pytest.mark.parametrize(
    ("size", "compression", "groups"), [(1, None, None), (2, None, None), (2, None, 1)]
)
def test_sparse_adam(pools, size: int, compression: str | None, groups: int | None):
    pools(size).run(_sparse_adam, compression, groups)


def test_sparse_adam_with_a_codec(pools):
    pools(2).run(_sparse_adam, "int4", None)


def _once_free(function: Callable[..., Any], *args: Any) -> Any:
    """Calls the function until all names that it needs are free."""
    limit = time.monotonic() + 30
    while True:
        try:
            return function(*args)
        except ValueError as error:
            assert "is taken" in str(error) and time.monotonic() < limit, error
            time.sleep(0.01)


def _never_stepped() -> None:
    """Checks that names of gradients are free after the reduction, even if the optimizer is
    kept."""
    gc.disable()
    try:
        with initialized():
            kept = []
            for _ in range(3):
                net, table = nn.Linear(6, 2), nn.Embedding(6, 2, sparse=True)
                named = [*net.named_parameters(), ("table", table.weight)]
                optimizer = torch.optim.SGD([p for _, p in named], lr=0.1)
                optimizer = hvd.DistributedOptimizer(optimizer, named)
                for name, _ in named:
                    suffix = ".sparse" if name == "table" else ""
                    _once_free(hvd.allreduce, torch.ones(1), None, name + suffix)
                (net(torch.ones(6)).sum() + table(torch.tensor([1])).sum()).backward()
                kept.append(optimizer)
            optimizer.step()
            same_bits(hvd.broadcast(net.weight.detach(), 0), net.weight.detach(), "step")
            with pytest.raises(AssertionError, match="on their way"):
                kept[0].zero_grad()
            # A dropped optimizer goes at once, and its hooks do not affect the next one.
            for _ in range(2):
                net.zero_grad()
                optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
                for group in optimizer.param_groups:
                    for i in range(len(group["params"])):
                        _once_free(hvd.allreduce, torch.ones(1), None, f"noname.0.{i}")
                del kept[:]
                net(torch.ones(6)).sum().backward()
            optimizer.step()
    finally:
        gc.enable()


def _draw_by_rank():
    torch.rand(1 + dist.get_rank())


def test_names_of_what_is_never_stepped(pools):
    pools(2).run(_draw_by_rank)  # an earlier test in the same processes may do the same
    pools(2).run(_never_stepped)
