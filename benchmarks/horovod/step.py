"""The training step of all parts: 160 tensors with 10 M parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

_LAYERS, _WIDTH, _BATCH = 80, 353, 16


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())]
    return nn.Sequential(*layers)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=1e-3)


def step_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    x = torch.randn(_BATCH, _WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step
