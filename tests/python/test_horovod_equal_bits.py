"""The bits of a training do not depend on the times of gradients, nor on fusion."""

from __future__ import annotations

import hashlib
import itertools
import random
import time

import pytest
import torch
from support.horovod import initialized
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import torch_ringdist.horovod as hvd

SIZE = 3
STEPS = 8
WIDTH = 200  # such sums are cut into parts, in an order that depends on their positions
RUNS = 3
# Names in hvd.Compression, or text.
COMPRESSIONS = ["none", "fp16", "int4"]


def _net() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(6)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 4))


def _batch(step: int) -> tuple[Tensor, Tensor]:
    """Returns this rank's batch, with values that round."""
    drawn = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randn(16, WIDTH, generator=drawn), torch.randn(16, 4, generator=drawn)


def _delay(drawn: random.Random) -> None:
    if drawn.random() < 0.3:
        time.sleep(0.003 * drawn.random())


def _train(compression: str, seed: int | None) -> list[str]:
    """Returns a digest of the parameters after each step. `seed` draws delays; None means no
    delays."""
    drawn = random.Random(f"{seed} on {hvd.rank()}")
    net = _net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9),
        named_parameters=net.named_parameters(),
        compression=getattr(hvd.Compression, compression, compression),
    )
    if seed is not None:
        for p in net.parameters():
            p.register_hook(lambda _: _delay(drawn))  # before its gradient is reduced
    out = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = _batch(step)
        mse_loss(net(x), y).backward()
        others = [_mean_of(loss, step) for loss in ("a", "b")]  # beside the gradients
        optimizer.step()
        values = [p.detach() for p in net.parameters()] + [hvd.synchronize(o) for o in others]
        out.append(hashlib.sha256(b"".join(v.numpy().tobytes() for v in values)).hexdigest())
    return out


def _mean_of(name: str, step: int) -> int:
    drawn = torch.Generator().manual_seed(7 * step + hvd.rank())
    return hvd.allreduce_async(torch.randn(33, generator=drawn), name=f"mean of {name}")


def _runs(compression: str, seeds: list[int | None]) -> list[list[str]]:
    with initialized():
        return [_train(compression, seed) for seed in seeds]


@pytest.mark.default_of("RINGDIST_ALGORITHM", reason="a forced one need not add by ranks")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_other_delays_give_the_same_bits(pools, compression: str):
    seeds = [None, *(random.randrange(1 << 30) for _ in range(RUNS - 1))]
    print(f"seeds {seeds}")
    by_rank = pools(SIZE).run(_runs, compression, seeds)
    first = by_rank[0][0]
    for (rank, runs), run in itertools.product(enumerate(by_rank), range(RUNS)):
        differ = [step for step in range(STEPS) if runs[run][step] != first[step]]
        assert not differ, f"rank {rank}, delays of seed {seeds[run]}: other bits from {differ} on"
