"""Distributed checkpoints (DCP) of a model that FSDP2 has split, read by other numbers of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from support.rank import new_group, same_bits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

KINDS = ["save", "async_save"]


def make(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a split model and an optimizer that already has state."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, 13), nn.ReLU(), nn.Linear(13, 7))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    train(model, optimizer, seed)
    return model, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    optimizer.zero_grad()
    x = torch.randn(4, 10, generator=torch.Generator().manual_seed(seed))
    model(x).square().sum().backward()
    optimizer.step()


def state(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict:
    parameters, states = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": states, "step": step}


def flat(tree: dict, path: str = "") -> dict[str, torch.Tensor]:
    """Returns the tensors of nested dicts as whole ones, by path. All ranks call it."""
    found: dict[str, torch.Tensor] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= flat(value, f"{path}/{key}")
        elif isinstance(value, torch.Tensor):
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            found[f"{path}/{key}"] = whole.detach().clone()
    return found


def _save(kind: str, folder: str, copy: str) -> None:
    """Saves a state that changes while async_save writes. `copy` gets the state at the call."""
    model, optimizer = make(1)
    saved = state(model, optimizer, 5)
    at_call = flat(saved)
    if kind == "save":
        dcp.save(saved, checkpoint_id=folder)
    else:
        # The writing thread runs collectives beside those of training, so it needs its own group.
        group = new_group()
        writing = dcp.async_save(saved, checkpoint_id=folder, process_group=group)
        for seed in range(3):
            train(model, optimizer, seed)
        writing.result(timeout=30)
        dist.destroy_process_group(group)
    if dist.get_rank() == 0:
        torch.save(at_call, copy)
    dist.barrier()


def _load(folder: str, copy: str) -> None:
    at_save = torch.load(copy)
    model, optimizer = make(2)
    loaded = state(model, optimizer, 0)
    before = flat(loaded)
    name = "/model/0.weight"
    assert not torch.equal(before[name], at_save[name]), "there is nothing to load"
    dcp.load(loaded, checkpoint_id=folder)
    assert loaded["step"] == 5
    set_state_dict(
        model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
    )
    now = flat(state(model, optimizer, 5))
    assert set(now) == set(at_save) and any("exp_avg" in name for name in now), sorted(now)
    for name, tensor in now.items():
        same_bits(tensor, at_save[name], name)


@pytest.mark.parametrize("readers", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_ranks_reads_it(pools, tmp_path: Path, kind: str, readers: int):
    paths = str(tmp_path / "checkpoint"), str(tmp_path / "copy.pt")
    pools(2).run(_save, kind, *paths)
    pools(readers).run(_load, *paths)
