"""Each stateful part of torch as an entry of elastic.State. A step may end at each point."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.training import same
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils._pytree import tree_leaves, tree_map

from torch_ringdist import elastic
from torch_ringdist._tensor_meta import TensorMeta
from torch_ringdist.elastic._messages import decode, encode
from torch_ringdist.elastic._rank_state import content_of

STEPS = POINTS = 7
BAD_STEP = 2


def half(_: int) -> float:
    return 0.5


def _sequence(optimizer: torch.optim.Optimizer) -> lr_scheduler.SequentialLR:
    first = lr_scheduler.ConstantLR(optimizer, 0.1, 2)
    return lr_scheduler.SequentialLR(optimizer, [first, lr_scheduler.StepLR(optimizer, 1)], [3])


def _chain(optimizer: torch.optim.Optimizer) -> lr_scheduler.ChainedScheduler:
    first = lr_scheduler.ConstantLR(optimizer, 0.1, 2)
    return lr_scheduler.ChainedScheduler([first, lr_scheduler.ExponentialLR(optimizer, 0.9)])


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "LambdaLR": lambda one: lr_scheduler.LambdaLR(one, half),
    "MultiplicativeLR": lambda one: lr_scheduler.MultiplicativeLR(one, half),
    "StepLR": lambda one: lr_scheduler.StepLR(one, 2),
    "MultiStepLR": lambda one: lr_scheduler.MultiStepLR(one, [1, 3]),
    "ConstantLR": lambda one: lr_scheduler.ConstantLR(one, 0.5, 3),
    "LinearLR": lambda one: lr_scheduler.LinearLR(one, 0.5, 1.0, 4),
    "ExponentialLR": lambda one: lr_scheduler.ExponentialLR(one, 0.9),
    "PolynomialLR": lambda one: lr_scheduler.PolynomialLR(one, 9),
    "CosineAnnealingLR": lambda one: lr_scheduler.CosineAnnealingLR(one, 9),
    "CosineAnnealingWarmRestarts": lambda one: lr_scheduler.CosineAnnealingWarmRestarts(one, 2),
    "CyclicLR": lambda one: lr_scheduler.CyclicLR(one, 0.01, 0.1, 2),
    "OneCycleLR": lambda one: lr_scheduler.OneCycleLR(one, 0.1, total_steps=20),
    "ReduceLROnPlateau": lambda one: lr_scheduler.ReduceLROnPlateau(one, patience=1),
    "SequentialLR": _sequence,
    "ChainedScheduler": _chain,
    "SWALR": lambda one: SWALR(one, 0.01, 4),
}


class Training:
    """A training with a scheduler, a GradScaler, EMA and SWA."""

    def __init__(self, scheduler: str, copy: bool = True) -> None:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        self.state = elastic.State(
            copy=copy,
            net=net,
            optimizer=optimizer,
            scheduler=SCHEDULERS[scheduler](optimizer),
            scaler=torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2),
            swa=AveragedModel(net),
            ema=AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True),
        )

    def step(self) -> Iterator[None]:
        """Yields at POINTS places, where a collective may fail."""
        state = self.state
        generator = torch.Generator().manual_seed(state.steps)
        loss = state.net(torch.randn(8, 4, generator=generator)).pow(4).mean()
        if state.steps == BAD_STEP:  # the scaler skips this step and shrinks the scale
            loss = loss * float("inf")
        state.scaler.scale(loss).backward()
        yield
        state.scaler.unscale_(state.optimizer)
        yield
        state.scaler.step(state.optimizer)
        yield
        state.scaler.update()
        yield
        plateau = isinstance(state.scheduler, lr_scheduler.ReduceLROnPlateau)
        state.scheduler.step(*[1.0] if plateau else [])
        yield
        state.swa.update_parameters(state.net)
        yield
        state.ema.update_parameters(state.net)
        yield

    def commit(self) -> None:
        for _ in self.step():
            pass
        self.state.commit()

    def begin(self, point: int) -> None:
        for at, _ in enumerate(self.step()):
            if at == point:
                return

    def content(self) -> dict[str, Any]:
        given = self.state._given()
        given["optimizer"]["param_groups"][0].pop("params")
        return given


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[str, Any]]:
    """Returns the state after STEPS steps for each scheduler."""
    contents = {}
    for scheduler in SCHEDULERS:
        training = Training(scheduler)
        for _ in range(STEPS):
            training.commit()
        contents[scheduler] = training.content()
    return contents


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("shift", [0, 3])
def test_a_step_may_end_anywhere(undisturbed: dict[str, Any], scheduler: str, shift: int):
    training = Training(scheduler)
    for step in range(STEPS):
        for point in (step, step + shift):  # one failure may follow another
            training.begin(point % POINTS)
            training.state._put_back()
        training.commit()
    same(training.content(), undisturbed[scheduler])


def test_without_copies_a_step_may_end_before_the_optimizer(undisturbed: dict[str, Any]):
    training = Training("StepLR", copy=False)
    for _ in range(STEPS):
        for point in (0, 1):
            training.begin(point)
            training.state._put_back()
        training.commit()
    same(training.content(), undisturbed["StepLR"])


def test_an_optimizer_keeps_its_dtypes():
    """A checkpoint, another rank and a step that is undone restore the state as it was."""
    net = nn.Linear(2, 2, dtype=torch.bfloat16)
    optimizer = torch.optim.NAdam(net.parameters())
    state = elastic.State(net=net, optimizer=optimizer)
    for _ in range(3):
        net(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        state.commit()
    before = copy.deepcopy(optimizer.state_dict())
    assert before["state"][0]["mu_product"].dtype == torch.float32
    net(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    state._put_back()
    same(optimizer.state_dict(), before)


@pytest.mark.parametrize(
    ("scheduler", "point"),
    [*((one, None) for one in SCHEDULERS), *(("StepLR", point) for point in range(POINTS))],
)
def test_another_rank_goes_on_with_it(
    undisturbed: dict[str, Any], scheduler: str, point: int | None
):
    """Continues on a newcomer, or on a rank that is a step behind when the step fails."""
    first, other = Training(scheduler), Training(scheduler)
    for _ in range(BAD_STEP + 1):
        first.commit()
    if point is not None:
        for _ in range(BAD_STEP):
            other.commit()
        other.begin(point)
        other.state._put_back()
    message = encode(first.state._given(), "state")
    tensors = [one for one in tree_leaves(first.state._given()) if isinstance(one, torch.Tensor)]
    following = iter(tensors)
    given = tree_map(
        lambda one: next(following).clone() if isinstance(one, TensorMeta) else one, decode(message)
    )
    other.state._replace(given, first.state.steps, "")
    texts = content_of(other.state)
    assert texts == content_of(first.state)
    assert not [one for one in texts.values() if re.search("0x[0-9a-f]+", one)], "of one process"
    for _ in range(STEPS - BAD_STEP - 1):
        other.commit()
    same(other.content(), undisturbed[scheduler])
