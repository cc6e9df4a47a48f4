"""Tensor parallel and pipeline parallel training, compared with the whole model in one process."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

CPU = torch.device("cpu")
MICROBATCHES = 6


class Mlp(nn.Module):
    """A block from fp64 [batch, length, 12] to the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


def make(seed: int) -> Mlp:
    torch.manual_seed(seed)
    return Mlp().double()


def noise(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


PLANS = {
    "tensors": lambda: {"up": ColwiseParallel(), "down": RowwiseParallel()},
    # The input is split along the sequence, and gathered before the first layer.
    "sequence": lambda: {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Replicate()),
    },
}


def _tensor_parallel(plan: str, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    alone, mesh = make(seed), init_device_mesh("cpu", (size,))
    model = parallelize_module(make(seed), mesh, PLANS[plan]())
    x = noise(seed, 4, 6, 12)
    outputs = [model(x.chunk(size, 1)[rank] if plan == "sequence" else x), alone(x)]
    torch.testing.assert_close(*outputs)
    for out in outputs:
        out.square().sum().backward()
    assert model.up.weight.to_local().shape == (24 // size, 12)
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(
            whole(ours.grad), theirs.grad, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("size", [2, 3])
def test_tensor_parallel(pools, size: int, plan: str):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_tensor_parallel, plan, seed)


def _loss_parallel(seed: int) -> None:
    torch.manual_seed(seed)
    head, alone = (nn.Linear(12, 18).double() for _ in range(2))
    head.load_state_dict(alone.state_dict())
    x, labels = noise(seed, 10, 12), torch.arange(10)
    expected = nn.functional.cross_entropy(alone(x), labels)
    expected.backward()
    layout = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(head, init_device_mesh("cpu", (dist.get_world_size(),)), layout)
    with loss_parallel():
        loss = nn.functional.cross_entropy(head(x), labels)
        loss.backward()
    torch.testing.assert_close(whole(loss), expected)
    torch.testing.assert_close(whole(head.weight.grad), alone.weight.grad)


@pytest.mark.parametrize("size", [2, 3])
def test_loss_over_split_classes(pools, size: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_loss_parallel, seed)


def layers(seed: int, count: int) -> list[nn.Module]:
    torch.manual_seed(seed)
    return [nn.Sequential(nn.Linear(12, 12), nn.Tanh()).double() for _ in range(count)]


def _pipeline(stages_each: int, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * stages_each
    ours, alone = layers(seed, total), layers(seed, total)
    mine = range(rank, total, size)
    stages = [PipelineStage(ours[i], i, total, CPU) for i in mine]
    loss = nn.functional.mse_loss
    if stages_each == 1:
        schedule = Schedule1F1B(stages[0], MICROBATCHES, loss_fn=loss)
    else:
        schedule = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=loss)
    for step in range(2):
        x, y = noise(seed + step, 2, 4 * MICROBATCHES, 12)
        losses: list[torch.Tensor] = []
        inputs = (x,) if rank == 0 else ()
        if total - 1 in mine:
            schedule.step(*inputs, target=y, losses=losses)
        else:
            schedule.step(*inputs)
        expected = loss(nn.Sequential(*alone)(x), y)
        expected.backward()
        if losses:
            torch.testing.assert_close(torch.stack(losses).mean(), expected)
        for i in mine:
            for p, q in zip(ours[i].parameters(), alone[i].parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, msg=lambda t, i=i: f"stage {i}: {t}")
        nn.Sequential(*ours, *alone).zero_grad()


@pytest.mark.parametrize("size,stages_each", [(2, 1), (3, 1), (2, 2)])
def test_1f1b_pipeline(pools, size: int, stages_each: int):
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    pools(size).run(_pipeline, stages_each, seed)
