"""Learning rates and momentum under callbacks, in one process, and after a resume."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer, lr_scheduler

from torch_ringdist.horovod.callbacks import (
    Callback,
    CallbackList,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)

STEPS = 5  # per epoch
FOUR = SimpleNamespace(size=lambda: 4, rank=lambda: 0)


def _net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Linear(4, 2).double()


def _sgd(net: nn.Module, **settings: Any) -> SGD:
    """Returns SGD with two groups, with rates 0.4 and 0.04."""
    groups = [{"params": [net.weight]}, {"params": [net.bias], "lr": 0.04}]
    return SGD(groups, lr=0.4, **settings)


def _warmup(**named: Any) -> LearningRateWarmupCallback:
    return LearningRateWarmupCallback(warmup_epochs=2, process_set=FOUR, **named)


def _rates(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def _batch_loss(net: nn.Module, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(8, 4, generator=generator, dtype=torch.double)
    return (net(x) - 1).square().mean()


class Recorder:
    """Records the rates and the momentum of each step."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.rates: list[list[float]] = []
        self.momenta: list[float] = []
        optimizer.register_step_pre_hook(self._note)

    def _note(self, optimizer: Optimizer, *_: Any) -> None:
        self.rates.append(_rates(optimizer))
        self.momenta.append(optimizer.param_groups[0].get("momentum", 0))


def _train(
    callbacks: CallbackList,
    net: nn.Module,
    optimizer: Optimizer,
    epochs: int,
    passes: int = 1,
    scheduler: Any = None,
) -> list[tuple[int, int]]:
    """Trains and returns the epochs and batches. A scheduler steps with the optimizer."""
    done = []
    for epoch in callbacks.epochs(epochs):
        for batch in callbacks.batches(range(STEPS)):
            done.append((epoch, batch))
            (_batch_loss(net, epoch * STEPS + batch) / passes).backward()
            if (epoch * STEPS + batch + 1) % passes == 0:
                optimizer.step()
                optimizer.zero_grad()
                if scheduler is not None:
                    scheduler.step()
    return done


def _list(callbacks: list[Callback], net: nn.Module, optimizer: Optimizer) -> CallbackList:
    return CallbackList(callbacks, model=net, optimizer=optimizer, steps_per_epoch=STEPS)


def _growth(step: int) -> float:
    """Returns the factor at the end of this step, for two epochs of warm-up on four ranks."""
    return min(1.0, 0.25 + 0.75 * (step + 1) / (2 * STEPS))


def test_warm_up_grows_from_one_ranks_rate_to_that_of_all(capsys: pytest.CaptureFixture):
    net = _net()
    optimizer = _sgd(net)
    callbacks = _list([_warmup(verbose=1)], net, optimizer)
    recorder = Recorder(optimizer)
    for epoch in callbacks.epochs(3):
        for batch in callbacks.batches(range(STEPS)):
            factor = _growth(epoch * STEPS + batch)
            assert _rates(optimizer) == pytest.approx([0.4 * factor, 0.04 * factor])
            optimizer.step()
        logs: dict[str, Any] = {}
        callbacks.on_epoch_end(epoch, logs)
        assert logs["lr"] == pytest.approx(0.4 * _growth(epoch * STEPS + STEPS - 1))
        assert _rates(optimizer) == [0.4, 0.04]
    expected = [[0.4 * _growth(i), 0.04 * _growth(i)] for i in range(3 * STEPS)]
    assert recorder.rates == [pytest.approx(rates) for rates in expected]
    assert capsys.readouterr().out == "Epoch 2: warm-up has ended at learning rate 0.4\n"


def test_each_works_without_a_list():
    net = _net()
    optimizer = _sgd(net)
    warmup = _warmup(optimizer=optimizer, steps_per_epoch=STEPS, initial_lr=[0.8, 0.08])
    warmup.on_train_begin()
    warmup.on_epoch_begin(1)
    warmup.on_batch_begin(0)
    assert _rates(optimizer) == pytest.approx([0.8 * _growth(STEPS), 0.08 * _growth(STEPS)])
    warmup.on_batch_end(0)
    assert _rates(optimizer) == [0.8, 0.08]


SCHEDULES = [
    ({"multiplier": lambda epoch: 1 / (1 + epoch)}, lambda e, b: 1 / (1 + e)),
    (
        {"multiplier": lambda epoch: 1 / (1 + epoch), "staircase": False},
        lambda e, b: 1 / (1 + e + b / STEPS),
    ),
    ({"multiplier": 0.5, "start_epoch": 1}, lambda e, b: 0.5 ** (e - 1) if e >= 1 else 1),
    (
        {"multiplier": 0.5, "start_epoch": 1, "end_epoch": 3, "staircase": False},
        lambda e, b: 0.5 ** (e - 1 + b / STEPS) if 1 <= e < 3 else 1,
    ),
]


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_schedules(number: int):
    arguments, expected = SCHEDULES[number]
    net = _net()
    optimizer = _sgd(net)
    recorder = Recorder(optimizer)
    callback = LearningRateScheduleCallback(**arguments)
    _train(_list([callback], net, optimizer), net, optimizer, 4)
    assert len(recorder.rates) == 4 * STEPS
    for i, rates in enumerate(recorder.rates):
        factor = expected(i // STEPS, i % STEPS)
        assert rates == pytest.approx([0.4 * factor, 0.04 * factor]), i


SCHEDULERS = [
    lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.5),
    lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 3 * STEPS),
    lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.5, 3 * STEPS),
]


@pytest.mark.parametrize("number", range(len(SCHEDULERS)))
def test_a_scheduler_of_torch_beside_it_multiplies(number: int):
    def course(*callbacks: Callback) -> list[list[float]]:
        net = _net()
        optimizer = _sgd(net, momentum=0.5)
        recorder = Recorder(optimizer)
        scheduler = SCHEDULERS[number](optimizer)
        _train(_list([*callbacks], net, optimizer), net, optimizer, 3, scheduler=scheduler)
        return recorder.rates

    alone = course()
    half = LearningRateScheduleCallback(multiplier=lambda epoch: 0.5, start_epoch=1)
    for i, rates in enumerate(course(_warmup(), half)):
        factor = _growth(i) * (0.5 if i >= STEPS else 1)
        assert rates == pytest.approx([rate * factor for rate in alone[i]]), i


def test_a_rate_that_is_set_while_it_is_scaled_is_refused():
    net = _net()
    optimizer = _sgd(net)
    scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
    callbacks = _list([_warmup()], net, optimizer)
    callbacks.on_train_begin()
    callbacks.on_batch_begin(0)
    optimizer.param_groups[1]["lr"] = 7.0
    optimizer.step()
    with pytest.raises(RuntimeError, match="rate of parameter group 1 was set between"):
        callbacks.on_batch_end(0)
    assert _rates(optimizer) == [0.4, 7.0]
    # After the optimizer's step it is allowed.
    callbacks.on_batch_begin(1)
    optimizer.step()
    scheduler.step()
    callbacks.on_batch_end(1)
    assert _rates(optimizer) == [0.2, 3.5]


def test_a_batch_that_was_broken_off():
    net = _net()
    optimizer = _sgd(net)
    callbacks = _list([_warmup(), LearningRateScheduleCallback(multiplier=0.5)], net, optimizer)
    callbacks.on_train_begin()
    for batch in range(3):
        callbacks.on_batch_begin(batch)
        assert _rates(optimizer) == pytest.approx([0.4 * _growth(batch), 0.04 * _growth(batch)])
    callbacks.on_batch_end(2)
    assert _rates(optimizer) == [0.4, 0.04]


def test_checkpoints_have_the_own_rates():
    net = _net()
    optimizer = _sgd(net)
    callbacks = _list([_warmup()], net, optimizer)
    callbacks.on_train_begin()
    callbacks.on_batch_begin(0)
    saved = optimizer.state_dict()  # with accumulated gradients, and no step yet
    assert [group["lr"] for group in saved["param_groups"]] == [0.4, 0.04]
    recorder = Recorder(optimizer)
    optimizer.step()
    optimizer.step()
    assert recorder.rates == 2 * [pytest.approx([0.4 * _growth(0), 0.04 * _growth(0)])]
    callbacks.on_batch_end(0)
    assert _rates(optimizer) == [0.4, 0.04]


def test_a_rate_that_is_a_tensor_stays_it():
    net = _net()
    rate = torch.tensor(0.1)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, foreach=False)
    recorder = Recorder(optimizer)
    _train(_list([_warmup(initial_lr=0.4)], net, optimizer), net, optimizer, 2)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.4)
    expected = [[0.4 * _growth(i)] for i in range(2 * STEPS)]
    assert recorder.rates == [pytest.approx(rates) for rates in expected]


class KerasSgd(Optimizer):
    """SGD with the rate in its velocity: v = m v + rate g, then p -= v."""

    def __init__(self, parameters: Any, lr: float, momentum: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "lr_in_momentum": True})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).add_(p.grad, alpha=group["lr"])
                p.sub_(velocity)


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_momentum_is_corrected_where_velocity_holds_the_rate(passes: int):
    """Compares with SGD, where the rate is not in the velocity, also with accumulated gradients."""

    def trained(make: Any, correction: bool | None) -> torch.Tensor:
        net = _net()
        optimizer = make(net.parameters(), lr=0.2, momentum=0.9)
        schedule = LearningRateScheduleCallback(
            None, lambda epoch: 0.1, 2, momentum_correction=correction
        )
        callbacks = _list([_warmup(momentum_correction=correction), schedule], net, optimizer)
        _train(callbacks, net, optimizer, 3, passes)
        assert optimizer.param_groups[0]["momentum"] == 0.9
        return net.weight.detach()

    expected = trained(SGD, None)
    torch.testing.assert_close(trained(KerasSgd, None), expected)
    torch.testing.assert_close(trained(KerasSgd, True), expected)
    for make, correction in (
        (KerasSgd, False),
        (SGD, True),
    ):  # a control, which shows that the comparison can fail
        assert not torch.allclose(trained(make, correction), expected)


def test_momentum_times_new_rate_over_old_rate_in_that_step():
    net = _net()
    optimizer = _sgd(net, momentum=0.9)
    recorder = Recorder(optimizer)
    halved = LearningRateScheduleCallback(0.4, 0.5, momentum_correction=True)
    callbacks = _list([halved], net, optimizer)
    after = Recorder(optimizer)  # the last hook, which sees the values of the step
    _train(callbacks, net, optimizer, 3)
    expected = [0.9 * (0.5 if i in (STEPS, 2 * STEPS) else 1) for i in range(3 * STEPS)]
    assert after.momenta == pytest.approx(expected)
    assert recorder.momenta == pytest.approx([0.9] * 3 * STEPS)
    assert optimizer.param_groups[0]["momentum"] == 0.9


@pytest.mark.parametrize("stop", [(0, 3), (1, 0), (1, 4), (2, 2)])
def test_a_resume_goes_on_where_it_was(stop: tuple[int, int]):
    def made() -> tuple[Any, Any, Any, Any, Recorder]:
        net = _net()
        optimizer = KerasSgd(net.parameters(), 0.2, 0.9)
        scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 3 * STEPS)
        callbacks = _list([_warmup(), Own()], net, optimizer)
        return callbacks, net, optimizer, scheduler, Recorder(optimizer)

    callbacks, net, optimizer, scheduler, recorder = made()
    whole = _train(callbacks, net, optimizer, 3, scheduler=scheduler)
    rates, weight = recorder.rates, net.weight.detach().clone()

    parts: list[Any] = [None] * 4
    callbacks, net, optimizer, scheduler, recorder = made()
    done = []
    for epoch in callbacks.epochs(3):
        for batch in callbacks.batches(range(STEPS)):
            done.append((epoch, batch))
            _batch_loss(net, epoch * STEPS + batch).backward()
            optimizer.step(), optimizer.zero_grad(), scheduler.step()
            if (epoch, batch) == stop:
                parts = [one.state_dict() for one in (callbacks, net, optimizer, scheduler)]
                parts = copy.deepcopy(parts)
                break
        if parts[0]:
            break
    made_before, *others = recorder.rates, *made()
    for one, part in zip(others, parts, strict=False):
        one.load_state_dict(part)
    callbacks, net, optimizer, scheduler, recorder = others
    assert (callbacks.epoch, callbacks.batch) == (stop[0], stop[1] + 1)
    done += _train(callbacks, net, optimizer, 3, scheduler=scheduler)
    assert done == whole
    assert [*made_before, *recorder.rates] == rates
    assert torch.equal(net.weight, weight)


class Own(Callback):
    """A callback of a user."""
