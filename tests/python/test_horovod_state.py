"""Data from one rank to all: parameters and optimizers. Also statistics of batches."""

from __future__ import annotations

import unittest.mock

import pytest
import torch
from support.horovod import initialized
from support.rank import same_bits
from test_horovod_optimizer import _loss, _net
from torch import nn

import torch_ringdist.horovod as hvd
from torch_ringdist.horovod._gradients import Gradients

OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.5}),
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.Adam, {"lr": 0.1}),
    (torch.optim.AdamW, {"lr": 0.1, "amsgrad": True}),
    (torch.optim.Adagrad, {}),
    (torch.optim.RMSprop, {"momentum": 0.1}),
    (torch.optim.Adadelta, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.Rprop, {}),
    (torch.optim.ASGD, {}),
    (torch.optim.Adamax, {}),
]


def _state_goes_to_all(number: int, stepped: bool) -> None:
    make, settings = OPTIMIZERS[number]
    with initialized():
        net = _net()
        optimizer = make(net.parameters(), **settings)
        root = hvd.size() - 1
        if hvd.rank() == root:
            optimizer.param_groups[0]["lr"] = 0.125
            if stepped:
                _loss(net, 0, 0).backward()
                optimizer.step()
        before = [p.detach().clone() for p in net.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root)
        hvd.broadcast_parameters(net.named_parameters(), root)
        assert optimizer.param_groups[0]["lr"] == 0.125
        for theirs in hvd.allgather_object(optimizer.state_dict()):
            _same(theirs, optimizer.state_dict())
        if not stepped:
            assert not optimizer.state_dict()["state"] or make is torch.optim.Adagrad
            for p, old in zip(net.parameters(), before, strict=True):
                same_bits(p.detach(), old, "nothing was stepped")
        # The loaded optimizer works.
        optimizer.zero_grad()
        _loss(net, 1, 0).backward()
        optimizer.step()
        for name, p in net.named_parameters():
            same_bits(hvd.broadcast(p.detach(), 0), p.detach(), name)


def _same(a: object, b: object) -> None:
    if isinstance(a, torch.Tensor):
        same_bits(a, b, "state")
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            _same(a[key], b[key])
    elif isinstance(a, list | tuple):
        for one, other in zip(a, b, strict=True):
            _same(one, other)
    else:
        assert a == b


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("number", range(len(OPTIMIZERS)))
def test_state_goes_to_all(pools, number: int, stepped: bool):
    pools(2).run(_state_goes_to_all, number, stepped)


def _the_wrapped_optimizer_stays_shared() -> None:
    with initialized():
        net = _net()
        plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
        optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
        if hvd.rank() == 1:
            plain.param_groups[0]["lr"] = 0.25
        hvd.broadcast_optimizer_state(plain, 1)
        assert optimizer.param_groups[0]["lr"] == 0.25
        _loss(net, 0, 0).backward()
        optimizer.step()
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == 0.125 and len(plain.state) > 0


def test_the_wrapped_optimizer_stays_shared(pools):
    pools(2).run(_the_wrapped_optimizer_stays_shared)


def _sparse_tables_get_sparse_zeros() -> None:
    with initialized():
        for make, gives_model in ((torch.optim.SparseAdam, False), (torch.optim.SGD, True)):
            table = nn.Embedding(9, 2, sparse=True)
            optimizer = make(table.parameters(), lr=0.1)
            model = nn.Sequential(table) if gives_model else None
            hvd.broadcast_optimizer_state(optimizer, 0, model)
            table(torch.tensor([1, 3])).sum().backward()
            assert table.weight.grad is not None and table.weight.grad.is_sparse
            optimizer.step()


def test_sparse_tables_get_sparse_zeros(pools):
    pools(2).run(_sparse_tables_get_sparse_zeros)


def _frozen_before_the_first_hook() -> None:
    with initialized():
        net = _net()
        plain = torch.optim.SGD(net.parameters(), lr=0.1)
        # A job of one rank, which grows later, registers no hooks.
        with unittest.mock.patch.object(Gradients, "_hook"):
            optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
        frozen = next(net.parameters()).requires_grad_(False)
        hvd.shutdown()
        hvd.init()
        optimizer.zero_grad()
        _loss(net, 0, 0).backward()
        optimizer.step()
        assert frozen.grad is None or not frozen.grad.any()


def test_frozen_before_the_first_hook(pools):
    pools(2).run(_frozen_before_the_first_hook)


def _batch_norm(shape: list[int]) -> None:
    with initialized():
        rank, size = hvd.rank(), hvd.size()
        torch.manual_seed(1)
        rows = [r + 2 for r in range(size)]
        whole = torch.randn(sum(rows), 3, *shape, dtype=torch.double)
        weights = torch.randn_like(whole)
        own = slice(sum(rows[:rank]), sum(rows[: rank + 1]))
        plain = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d}[len(shape)](3).double()
        ours = hvd.SyncBatchNorm(3).double()
        for _ in range(2):
            x = whole.clone().requires_grad_()
            mine = whole[own].clone().requires_grad_()
            expected, out = plain(x), ours(mine)
            torch.testing.assert_close(out, expected[own])
            (expected * weights).sum().backward()
            (out * weights[own]).sum().backward()
            torch.testing.assert_close(mine.grad, x.grad[own])
            total = hvd.allreduce(ours.weight.grad, op=hvd.Sum)
            torch.testing.assert_close(total, plain.weight.grad)
            torch.testing.assert_close(ours.running_mean, plain.running_mean)
            torch.testing.assert_close(ours.running_var, plain.running_var)
        plain.eval(), ours.eval()
        torch.testing.assert_close(ours(whole), plain(whole))


@pytest.mark.parametrize("shape", [[], [4], [4, 5]])
def test_batch_norm_of_the_whole_batch(pools, shape: list[int]):
    pools(3).run(_batch_norm, shape)
