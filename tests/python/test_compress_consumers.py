"""Compression as called by others: from compiled code, with DTensors, by FSDP2."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from support.compress import refuses
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import torch_ringdist
import torch_ringdist.fsdp


def _calls(tensor: torch.Tensor) -> torch.Tensor:
    size = dist.get_world_size()
    doubled = tensor * 2
    torch_ringdist.all_reduce(doubled, codec="int8")
    part = torch.empty(len(tensor) // size)
    torch_ringdist.reduce_scatter_tensor(part, doubled + 1, codec="int8")
    whole = torch.empty(len(tensor))
    torch_ringdist.all_gather_into_tensor(whole, part - 1, codec="int8")
    return whole + 1


def _compiled() -> tuple[torch.Tensor, torch.Tensor]:
    tensor = torch.arange(4000.0)
    return torch.compile(_calls, backend="eager")(tensor), _calls(tensor)


def test_compiled_code_has_the_same_bits(pools):
    for compiled, plain in pools(2).run(_compiled):
        assert torch.equal(compiled, plain)


def _sharded() -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sharded = DTensor.from_local(torch.ones(2000), mesh, [Shard(0)])
    whole = torch.ones(2000)
    words = ["no memory of its own", "DTensor", "to_local()"]
    for call in (
        lambda: torch_ringdist.all_reduce(sharded, codec="int8"),
        lambda: torch_ringdist.all_reduce(sharded, codec="none"),
        lambda: torch_ringdist.all_reduce(torch.ones(4000), codec="int4", residual=sharded),
        lambda: torch_ringdist.reduce_scatter_tensor(whole, sharded, codec="int8"),
        lambda: torch_ringdist.all_gather_into_tensor(sharded, whole, codec="int8"),
    ):
        refuses(call, TypeError, words)
    torch_ringdist.all_reduce(sharded.to_local(), codec="int8")
    torch.testing.assert_close(sharded.to_local(), 2 * whole, rtol=0.01, atol=0)


def test_tensors_that_stand_for_others_are_refused(pools):
    pools(2).run(_sharded)


@pytest.mark.parametrize("communication", ["AllGather", "ReduceScatter"])
def test_fsdp_refuses_what_it_could_not_run(communication: str):
    make = getattr(torch_ringdist.fsdp, communication)
    refuses(lambda: make("int5"), ValueError, ["codec='int5'", "unknown codec"])
    refuses(lambda: make("powersgd:4"), ValueError, ["powersgd:4", "no codec of an operation"])
    refuses(lambda: make(4), TypeError, [communication, "'int8'", "int"])
    refuses(lambda: make(""), ValueError, [communication, "empty"])
    if communication == "AllGather":
        refuses(lambda: make("int4>int8"), ValueError, ["'int4>int8'", "one codec"])
    else:
        assert make("int4>int8").codec == "int4>int8"
