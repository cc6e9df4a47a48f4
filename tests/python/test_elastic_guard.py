"""elastic.State(copy=False): a step is undone without copies, or an error reports that it cannot
be."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.training import Training, same
from torch import nn

from torch_ringdist import ArgumentError, elastic


def test_without_copies_a_step_before_the_optimizers_is_undone():
    training = Training(copy=False)
    training.step()
    training.state.commit()
    before = training.content()
    training.forward()  # buffers and random numbers have changed
    training.state._put_back()
    same(training.content(), before)


def test_without_copies_what_is_no_tensor_is_undone():
    """Also works if the state is saved in the middle of a step."""
    training = Training(copy=False)
    training.step()
    state = training.state
    group, of = state.optimizer.param_groups[0], state.optimizer.state[state.net[0].weight]
    of["mine"] = [1, 2]
    state.commit()
    before = training.content()
    for _ in range(2):
        group.update(lr=7.0, betas=(0.5, 0.5), more=1)
        of["mine"].append(3)
        of["other"] = "new"
        state.optimizer.state[state.net[3].bias]["mine"] = 1
        given = state._given()["optimizer"]
        same(given, before["optimizer"])
        state._put_back()
        same(training.content(), before)


def test_without_copies_a_step_that_fails_in_a_closure_is_undone():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.LBFGS(net.parameters())
    state = elastic.State(copy=False, net=net, optimizer=optimizer)

    def fails() -> float:
        raise dist.DistNetworkError("a rank is lost")

    def works() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    for closure in (fails, works, fails):
        before = copy.deepcopy(optimizer.state_dict())
        if closure is works:
            optimizer.step(closure)
            state.commit()
            continue
        with pytest.raises(dist.DistNetworkError):
            optimizer.step(closure)
        state._put_back()
        same(optimizer.state_dict(), before)


def test_without_copies_what_cannot_be_undone_is_refused():
    for change in (
        lambda net, _: setattr(net, "weight", nn.Parameter(torch.ones(2, 2))),
        lambda net, _: setattr(net.weight, "data", net.weight.data.clone()),
        lambda _, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
        lambda _, optimizer: optimizer.param_groups[0]["lr"].mul_(2),
    ):
        net = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.1))
        state = elastic.State(copy=False, net=net, optimizer=optimizer)
        state.commit()
        change(net, optimizer)
        for refused in (state._put_back, lambda state=state: state.save("nowhere")):
            with pytest.raises(ArgumentError, match="has changed since the last commit"):
                refused()


class Own(torch.optim.SGD):
    """An optimizer with a state_dict() of its own."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state.pop("calls")
        super().load_state_dict(state)

    calls = 0


def test_without_copies_an_optimizer_of_its_own_kind_is_copied():
    net = nn.Linear(2, 2)
    optimizer = Own(net.parameters(), lr=0.1, momentum=0.9)
    state = elastic.State(copy=False, net=net, optimizer=optimizer)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state.commit()
    before = copy.deepcopy(optimizer.state_dict())
    optimizer.calls = 3
    optimizer.state[net.weight]["momentum_buffer"].add_(1)
    state._put_back()
    same(optimizer.state_dict(), before)


def test_without_copies_a_generation_begins_with_a_broadcast():
    """Broadcasts existing buffers like DDP, and again if the next generation ends before a step."""
    training = Training(copy=False)
    training.step()
    training.state.commit()
    before = training.content()
    for forward in (True, False, True):
        training.state._begin(0, 1)
        with torch.no_grad():
            for parameter in training.state.net.parameters():
                parameter.copy_(parameter.clone())
        if forward:
            training.forward()
        training.state._put_back()
        same(training.content(), before)
    training.step()
    with pytest.raises(ArgumentError, match="has changed since"):
        training.state._put_back()


def test_without_copies_a_changed_parameter_is_named():
    training = Training(copy=False)
    training.state.commit()
    training.step()
    with pytest.raises(ArgumentError, match=r"\['0.weight'\] of net has changed since the last"):
        training.state._put_back()


def test_without_copies_a_changed_optimizer_is_named():
    training = Training(copy=False)
    training.step()
    training.state.commit()
    optimizer = training.state.optimizer
    next(iter(optimizer.state.values()))["exp_avg"].zero_()
    with pytest.raises(ArgumentError, match=r"exp_avg.* of optimizer has changed"):
        training.state._put_back()
