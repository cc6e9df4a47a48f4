"""DistributedOptimizer and the start of a job, compared with one process with the whole batch."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import time
import warnings

import pytest
import torch
from support.horovod import initialized
from support.rank import caught, same_bits
from torch import nn
from torch.nn.functional import mse_loss

import torch_ringdist.horovod as hvd


def _net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def _batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(100 * step + rank)
    return (
        torch.randn(4, 6, generator=drawn, dtype=torch.double),
        torch.randn(4, 2, generator=drawn, dtype=torch.double),
    )


def _loss(net: nn.Module, step: int, rank: int) -> torch.Tensor:
    x, y = _batch(step, rank)
    return mse_loss(net(x), y)


def _alone(make, steps: int, size: int, passes: int = 1) -> list[torch.Tensor]:
    """Returns the parameters of one process that has all batches."""
    net = _net()
    optimizer = make(net.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        losses = [_loss(net, passes * step + p, r) for p in range(passes) for r in range(size)]
        (sum(losses) / size).backward()
        optimizer.step()
    return list(net.parameters())


def _sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def _adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def _close(net: nn.Module, expected: list[torch.Tensor]) -> None:
    for mine, theirs in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
    for name, p in net.named_parameters():
        same_bits(hvd.broadcast(p.detach(), 0), p.detach(), name)


def _trains(kind: str, **settings: object) -> None:
    make = {"sgd": _sgd, "adam": _adam}[kind]
    with initialized():
        net = _net(seed=hvd.rank())
        hvd.broadcast_parameters(net.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(
            make(net.parameters()), named_parameters=net.named_parameters(), **settings
        )
        passes = settings.get("backward_passes_per_step", 1)
        for step in range(5):
            optimizer.zero_grad()
            for p in range(passes):
                _loss(net, passes * step + p, hvd.rank()).backward()
            optimizer.step()
        _close(net, _alone(make, 5, hvd.size(), passes))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sgd", {}),
        ("adam", {}),
        ("sgd", {"groups": 2}),
        ("sgd", {"gradient_predivide_factor": 2.0}),
        ("sgd", {"backward_passes_per_step": 2}),
    ],
)
@pytest.mark.parametrize("size", [1, 3])
def test_trains_as_one_process(pools, size: int, kind: str, settings: dict):
    pools(size).run(_trains_with, kind, settings)


def _trains_with(kind: str, settings: dict) -> None:
    _trains(kind, **settings)


def _other_settings() -> None:
    with initialized():
        rank, size = hvd.rank(), hvd.size()
        mean = sum(range(1, size + 1)) / size

        def gradient(passes: int = 1, **settings: object) -> torch.Tensor:
            p = nn.Parameter(torch.zeros(3))
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), **settings)
            for _ in range(passes):
                (p * (rank + 1)).sum().backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
            same_bits(p.detach(), -p.grad, "the step")
            return p.grad

        full = torch.ones(3)
        same_bits(gradient(), full * mean, "average")
        same_bits(gradient(op=hvd.Sum), full * mean * size, "sum")
        same_bits(gradient(compression=hvd.Compression.fp16), full * mean, "fp16")
        same_bits(gradient(2, backward_passes_per_step=2), full * 2 * mean, "two passes")
        same_bits(
            gradient(2, backward_passes_per_step=2, average_aggregated_gradients=True),
            full * mean,
            "their average",
        )


def _adasum_steps() -> None:
    with initialized():
        p = nn.Parameter(torch.zeros(hvd.size()))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=hvd.Adasum)
        p[hvd.rank()].backward()
        optimizer.step()
        same_bits(p.detach(), torch.full((hvd.size(),), -1.0), "orthogonal steps add up")


def _missing_gradients() -> None:
    with initialized():
        used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([used, unused], lr=1.0),
            named_parameters=[("used", used), ("unused", unused)],
        )
        loss = used.sum() + (unused.sum() if hvd.rank() == 0 else 0)
        loss.backward()
        optimizer.step()
        same_bits(used.detach(), torch.zeros(2), "all ranks used it")
        torch.testing.assert_close(unused.detach(), torch.full((2,), 1 - 1 / hvd.size()))


def _sparse(as_dense: bool) -> None:
    with initialized():
        table = nn.Embedding(6, 2, sparse=True)
        nn.init.zeros_(table.weight)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=1.0), sparse_as_dense=as_dense
        )
        table(torch.tensor([hvd.rank(), 5])).sum().backward()
        optimizer.step()
        assert table.weight.grad.is_sparse and table.weight.grad.sparse_dim() == 1
        expected = torch.zeros(6, 2)
        expected[: hvd.size()] = -1 / hvd.size()
        expected[5] = -1
        torch.testing.assert_close(table.weight.detach(), expected)


def _mistakes() -> None:
    with initialized():
        net = _net()
        plain = _sgd(net.parameters())
        named = list(net.named_parameters())
        make = hvd.DistributedOptimizer
        for settings, text in [
            ({"named_parameters": named[:2]}, "lacks 2 of"),
            ({"named_parameters": [p for _, p in named]}, "tuples"),
            ({"named_parameters": [("w", p) for _, p in named]}, "called w"),
            ({"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0"),
            ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "op != Average"),
            ({"groups": [[named[0][1], named[0][1]]]}, "each once"),
        ]:
            raised = caught(make, plain, **settings)
            assert raised is not None and "ValueError" in raised.kinds and text in raised.text
        optimizer = make(plain, named_parameters=named)
        _loss(net, 0, 0).backward()
        raised = caught(optimizer.zero_grad)
        assert raised is not None and raised.kinds[0] == "AssertionError"
        raised = caught(lambda: _loss(net, 0, 0).backward())
        assert raised is not None and "backward_passes_per_step" in raised.text, raised
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer.step()
        [one] = [str(w.message) for w in said]
        assert one.startswith("optimizer.step() called without optimizer.skip_synchronize()"), one
        optimizer.zero_grad(set_to_none=False)
        assert all(not p.grad.any() for p in net.parameters())


def _is_still_an_optimizer() -> None:
    with initialized():
        net = _net()
        plain = _adam(net.parameters())
        optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
        assert isinstance(optimizer, torch.optim.Adam)
        assert optimizer.param_groups is plain.param_groups and optimizer.state is plain.state
        assert list(optimizer._parameter_names.values()) == [n for n, _ in net.named_parameters()]
        steps = []
        optimizer.register_step_post_hook(lambda *_: steps.append(1))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        _loss(net, 0, hvd.rank()).backward()
        assert optimizer.step(lambda: _again(optimizer, net)).item() > 0
        schedule.step()
        assert len(steps) == 1 and optimizer.param_groups[0]["lr"] == 0.005
        for other in (pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
            assert isinstance(other, torch.optim.Adam)
            assert type(other) is type(optimizer)
            assert list(other._parameter_names.values()) == list(
                optimizer._parameter_names.values()
            )
            p = other.param_groups[0]["params"][0]
            p.grad = torch.full_like(p, float(hvd.rank()))
            other.synchronize()
            assert p.grad[0, 0].item() == sum(range(hvd.size())) / hvd.size()
        buffer = io.BytesIO()
        torch.save(optimizer.state_dict(), buffer)
        buffer.seek(0)
        optimizer.load_state_dict(torch.load(buffer))


def _again(optimizer: torch.optim.Optimizer, net: nn.Module) -> torch.Tensor:
    optimizer.synchronize()
    optimizer._synchronized = False
    optimizer.zero_grad()
    loss = _loss(net, 0, hvd.rank())
    loss.backward()
    return loss


def _one_process_set() -> None:
    some = hvd.ProcessSet([0, 1])
    with initialized(process_sets=[some]):
        p = nn.Parameter(torch.zeros(1))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), process_set=some)
        (p * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        assert p.item() == (-1.5 if hvd.rank() < 2 else -3.0)


def _scheduler_made_before() -> None:
    """Checks that a scheduler and the wrapped optimizer share the state of the wrapper, also
    when loaded."""
    with initialized():
        net = _net()
        plain = _sgd(net.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
        optimizer = hvd.DistributedOptimizer(plain, named_parameters=net.named_parameters())
        calls: list[str] = []
        optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
        optimizer.register_step_post_hook(lambda *_: calls.append("post"))
        for number in range(3):
            _loss(net, number, hvd.rank()).backward()
            optimizer.step()
            optimizer.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # for example that the optimizer did not step
                schedule.step()
            assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5 ** (number + 1)
            assert optimizer.state is plain.state and len(plain.state) == 4
            hvd.broadcast_optimizer_state(optimizer, 0)
        assert calls == ["pre", "post"] * 3


def _new_parameters() -> None:
    with initialized():
        rank, size = hvd.rank(), hvd.size()
        first, second, third = (nn.Parameter(torch.zeros(1)) for _ in range(3))
        third.requires_grad_(False)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, third], lr=1.0))
        optimizer.add_param_group({"params": [second]})
        mean = (size + 1) / 2
        (first * (rank + 1) + second * (rank + 1)).sum().backward()
        optimizer.step()
        assert first.item() == second.item() == -mean and third.grad is None
        optimizer.zero_grad()
        third.requires_grad_(True)
        first.requires_grad_(False)
        (second * (rank + 1) + third * (rank + 1)).sum().backward()
        optimizer.step()
        assert (first.item(), second.item(), third.item()) == (-mean, -2 * mean, -mean)
        assert first.grad is None, "frozen"
        assert copy.deepcopy(optimizer) is not optimizer


def _goes_on_after_a_failure() -> None:
    with initialized():
        odd = nn.Parameter(torch.ones(2 if hvd.rank() else 3))
        even = nn.Parameter(torch.ones(2))
        named = [("odd", odd), ("even", even)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([odd, even], 1.0), named)
        for _ in range(2):
            (odd.sum() + even.sum()).backward()
            raised = caught(optimizer.step)
            assert raised is not None and "'odd'" in raised.text, raised
            optimizer.zero_grad()
        (odd.sum() + even.sum()).backward()
        del optimizer  # its operations are abandoned, and their names become free
        gc.collect()
        hvd.barrier()
        while (raised := caught(hvd.allreduce, torch.ones(2), name="even")) is not None:
            assert "is taken" in raised.text, raised
            time.sleep(0.01)


def _closures() -> None:
    with initialized():
        torch.manual_seed(0)
        net = _net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.LBFGS(net.parameters(), max_iter=3), net.named_parameters()
        )

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = _loss(net, 0, hvd.rank())
            loss.backward()
            return loss

        before = closure().item()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            pass
        optimizer._synchronized = False
        first = optimizer.step(closure).item()
        assert first == before
        for name, p in net.named_parameters():
            same_bits(hvd.broadcast(p.detach(), 0), p.detach(), name)


def _wrapped_twice() -> None:
    with initialized():
        optimizer = hvd.DistributedOptimizer(_sgd(_net().parameters()))
        raised = caught(hvd.DistributedOptimizer, optimizer)
        assert raised is not None and "is one already" in raised.text


def _adasum_of_some() -> None:
    some = hvd.ProcessSet([0, 2])
    with initialized(process_sets=[some]):
        p = nn.Parameter(torch.zeros(3))
        settings = {"op": hvd.Adasum, "process_set": some}
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), **settings)
        p[hvd.rank()].backward()
        optimizer.step()
        expected = [0.0, -1.0, 0.0] if hvd.rank() == 1 else [-1.0, 0.0, -1.0]
        assert p.tolist() == expected


@pytest.mark.parametrize(
    "function",
    [
        _scheduler_made_before,
        _new_parameters,
        _goes_on_after_a_failure,
        _closures,
        _wrapped_twice,
        _adasum_of_some,
        _other_settings,
        _adasum_steps,
        _missing_gradients,
        _mistakes,
        _is_still_an_optimizer,
        _one_process_set,
    ],
)
@pytest.mark.check
def test_optimizer(pools, function):
    pools(3).run(function)


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients(pools, as_dense: bool):
    pools(2).run(_sparse, as_dense)
