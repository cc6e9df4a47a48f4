"""Data from one rank to all: parameters and optimizers. Also statistics of batches."""

from __future__ import annotations

import pytest
import torch
from support.horovod import initialized
from support.rank import same_bits
from test_horovod_optimizer import _loss, _net
from torch import nn

import torch_ringdist.horovod as hvd

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
