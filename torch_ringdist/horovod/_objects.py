"""Collectives of Python objects by pickle, for ranks that trust each other."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_ringdist.horovod._ops import allgather, broadcast_
from torch_ringdist.horovod._sets import ProcessSet, global_process_set, group_of


def _as_bytes(obj: Any) -> Tensor:
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _bytes(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.uint8, device="cpu")


def _size_of(data: Tensor) -> Tensor:
    return torch.tensor([len(data)], dtype=torch.int64, device="cpu")


def _from_bytes(data: Tensor) -> Any:
    return torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=False, map_location="cpu")


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the root's object to all ranks, pickled, and returns it.

    Args:
        obj: the object; used on the root only.
        root_rank: a global rank in the set.
        name: name of its two operations.
        process_set: the ranks.
    """
    group = group_of(process_set, "broadcast_object")
    is_root = group.members[group.rank] == root_rank
    data = _as_bytes(obj) if is_root else _bytes(0)
    size = _size_of(data)
    broadcast_(size, root_rank, name and f"{name}.sz", process_set)
    if not is_root:
        data = _bytes(int(size))
    broadcast_(data, root_rank, name and f"{name}.t", process_set)
    return obj if is_root else _from_bytes(data)


def broadcast_object_fn(
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that calls broadcast_object() with its argument."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the objects of all ranks in rank order; they are pickled."""
    data = _as_bytes(obj)
    sizes = allgather(_size_of(data), name and f"{name}.sz", process_set)
    parts = allgather(data, name and f"{name}.t", process_set).split(sizes.tolist())
    return [_from_bytes(part) for part in parts]
