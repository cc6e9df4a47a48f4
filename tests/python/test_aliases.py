"""Inputs and outputs that overlap in memory, with separate storages, like two numpy arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.rank import same_bits
from torch.distributed.distributed_c10d import AllgatherOptions, ReduceScatterOptions

COUNT = 50_021
SHIFT = 5  # offset of the overlap, in elements
View = Callable[[int, int], torch.Tensor]  # (begin, count) -> a view of this rank's memory


def given(rank: int, begin: int = 0, count: int | None = None) -> torch.Tensor:
    """Returns the content of a rank's memory before the call."""
    count = dist.get_world_size() * COUNT if count is None else count
    return torch.arange(begin, begin + count) * (rank + 1)


def parts(view: View) -> list[torch.Tensor]:
    return [view(rank * COUNT, COUNT) for rank in range(dist.get_world_size())]


def gathered() -> torch.Tensor:
    return torch.cat([given(rank, SHIFT, COUNT) for rank in range(dist.get_world_size())])


def scattered() -> torch.Tensor:
    rank, size = dist.get_rank(), dist.get_world_size()
    return torch.stack([given(r, rank * COUNT, COUNT) for r in range(size)]).sum(0)


def exchanged() -> torch.Tensor:
    rank, size = dist.get_rank(), dist.get_world_size()
    return torch.cat([given(r, rank * COUNT, COUNT) for r in range(size)])


def _gather(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    root = dist.get_rank() == 0
    outputs = parts(view) if root else None
    dist.gather(view(SHIFT, COUNT), outputs)
    return (torch.cat(outputs), gathered()) if outputs else (torch.ones(0), torch.ones(0))


def _scatter(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    dist.scatter(output := view(SHIFT, COUNT), parts(view) if dist.get_rank() == 0 else None)
    return output, given(0, dist.get_rank() * COUNT, COUNT)


def _all_gather(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    dist.all_gather(outputs := parts(view), view(SHIFT, COUNT))
    return torch.cat(outputs), gathered()


def _all_gather_into_tensor(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    output = view(0, dist.get_world_size() * COUNT)
    dist.all_gather_into_tensor(output, view(SHIFT, COUNT))
    return output, gathered()


def _all_gather_into_tensor_coalesced(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    output = view(0, dist.get_world_size() * COUNT)
    options = AllgatherOptions()
    dist.group.WORLD.allgather_into_tensor_coalesced([output], [view(SHIFT, COUNT)], options).wait()
    return output, gathered()


def _all_gather_coalesced(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = parts(view)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.allgather_coalesced([[part] for part in outputs], [view(SHIFT, COUNT)]).wait()
    return torch.cat(outputs), gathered()


def _reduce_scatter(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    dist.reduce_scatter(output := view(SHIFT, COUNT), parts(view))
    return output, scattered()


def _reduce_scatter_tensor(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    whole = view(0, dist.get_world_size() * COUNT)
    dist.reduce_scatter_tensor(output := view(SHIFT, COUNT), whole)
    return output, scattered()


def _reduce_scatter_tensor_coalesced(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    whole, output = view(0, dist.get_world_size() * COUNT), view(SHIFT, COUNT)
    options = ReduceScatterOptions()
    dist.group.WORLD.reduce_scatter_tensor_coalesced([output], [whole], options).wait()
    return output, scattered()


def _all_to_all(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = parts(view)
    outputs = [view(rank * COUNT + SHIFT, COUNT) for rank in range(len(inputs))]
    dist.all_to_all(outputs, inputs)
    return torch.cat(outputs), exchanged()


def _all_to_all_single(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    count = dist.get_world_size() * COUNT
    dist.all_to_all_single(output := view(SHIFT, count), view(0, count))
    return output, exchanged()


def _all_reduce_coalesced(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    """Reduces a list of overlapping tensors, which are written one after another."""
    tensors = [view(0, COUNT), view(SHIFT, COUNT)]
    dist.all_reduce_coalesced(tensors)
    scale = sum(range(1, dist.get_world_size() + 1))
    return tensors[1].clone(), given(0, SHIFT, COUNT) * scale


OPERATIONS = {
    "all_gather": _all_gather,
    "all_gather_coalesced": _all_gather_coalesced,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "all_gather_into_tensor_coalesced": _all_gather_into_tensor_coalesced,
    "all_reduce_coalesced": _all_reduce_coalesced,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "gather": _gather,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "reduce_scatter_tensor_coalesced": _reduce_scatter_tensor_coalesced,
    "scatter": _scatter,
}


def _two_storages(name: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for attempt in range(3):
        memory = given(rank, 0, size * COUNT + SHIFT).numpy().copy()

        def view(begin: int, count: int, memory: np.ndarray = memory) -> torch.Tensor:
            return torch.from_numpy(memory[begin : begin + count])

        one, other = view(0, 3).untyped_storage(), view(0, 3).untyped_storage()
        assert one._cdata != other._cdata, "one storage"
        same_bits(*OPERATIONS[name](view), f"{name}, attempt {attempt}")


@pytest.mark.parametrize("name", OPERATIONS)
def test_two_storages_over_one_memory(pools, name: str):
    pools(3).run(_two_storages, name)
