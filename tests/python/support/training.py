"""A training with entries of all kinds, and a comparison of two of them."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn

from support.rank import same_bits
from torch_ringdist import elastic
from torch_ringdist.elastic._parts import RandomNumbers


def make_net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


class Training:
    """A training with entries of all kinds."""

    def __init__(self, copy: bool = True, seed: int = 0) -> None:
        torch.manual_seed(seed)
        net = make_net()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        self.state = elastic.State(
            copy=copy,
            net=net,
            optimizer=optimizer,
            scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
            scaler=torch.amp.GradScaler("cpu"),
            sampler=elastic.Sampler(range(100), global_batch=10),
            epoch=0,
            best={"loss": 1e9, "of": torch.zeros(2)},
        )

    def forward(self) -> torch.Tensor:
        state = self.state
        loss = state.net(torch.rand(8, 4)).square().mean() * random.random()
        loss.backward()
        return loss

    def step(self) -> None:
        state, loss = self.state, self.forward()
        state.optimizer.step()
        state.scheduler.step()
        state.best = {"loss": loss.item(), "of": torch.full((2,), loss.item())}

    def content(self) -> dict[str, Any]:
        """Returns everything that a step changes."""
        state = self.state
        return {
            "net": {name: one.clone() for name, one in state.net.state_dict().items()},
            "optimizer": torch.utils._pytree.tree_map(
                lambda one: one.clone() if isinstance(one, torch.Tensor) else one,
                state.optimizer.state_dict(),
            ),
            "scheduler": dict(state.scheduler.state_dict()),
            "sampler": state.sampler.state_dict(),
            "best": dict(state.best),
            "random": RandomNumbers().read(),
        }


def same(ours: Any, theirs: Any, what: str = "") -> None:
    ours, tree = torch.utils._pytree.tree_flatten_with_path(ours)
    theirs, other = torch.utils._pytree.tree_flatten_with_path(theirs)
    assert tree == other, what
    for (path, one), (_, two) in zip(ours, theirs, strict=True):
        if isinstance(one, torch.Tensor):
            same_bits(one, two, f"{what} {path}")
        else:
            assert one == two, f"{what} {path}"
