"""Transfers the state of the most advanced rank to ranks that need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from torch_ringdist._tensor_meta import TensorMeta
from torch_ringdist.elastic._parts import Tree

if TYPE_CHECKING:
    from torch_ringdist.elastic._rank_state import GenerationView
    from torch_ringdist.elastic._state import State

# Bytes that are broadcast at once. Ranks that need nothing receive into temporary memory of this
# size.
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class StateSkeleton:
    """A state with a TensorMeta in place of each tensor, and the residuals for newcomers."""

    steps: int
    training: str  # id of the training
    trees: dict[str, Tree]
    owed: list[dict[str, Any]]


def transfer(state: State, company: GenerationView) -> None:
    """Sends the state of the source to all ranks that need it. All ranks call it.

    If it raises, the state of this rank is unchanged.
    """
    rank, source = dist.get_rank(), company.source
    needed, first = company.needs_state(rank), not company.has_trained
    mine, outline = None, None
    if rank == source:
        mine = state._given()
        # Residuals of a checkpoint are shared out to all ranks; otherwise each rank keeps its own.
        owed = state._residuals.owed() if first else state._residuals.without_tensors()
        trees = pytree.tree_map(_outline, mine)
        outline = StateSkeleton(state.steps, state._identify(), trees, owed)
    objects = [outline]
    dist.broadcast_object_list(objects, src=source)
    outline = objects[0]
    assert outline is not None
    world = dist.group.WORLD
    assert world is not None
    leaves, shape = pytree.tree_flatten(outline.trees)
    own = pytree.tree_leaves(mine)
    for chunk in _chunks(leaves):
        tensors = [
            # The broadcast also writes the tensors of the source.
            own[at].clone() if rank == source else leaves[at].allocate()
            for at in chunk
        ]
        dist._broadcast_coalesced(world, tensors, _CHUNK_BYTES, source)
        if needed:
            for at, tensor in zip(chunk, tensors, strict=True):
                leaves[at] = tensor
    if needed:
        state._replace(pytree.tree_unflatten(leaves, shape), outline.steps, outline.training)
    if first:
        state._residuals.replace(outline.owed, dist.get_world_size())
    elif not company.standings[rank].veteran:
        state._residuals.replace(outline.owed)
    elif needed:
        state._residuals.adopt(outline.owed)


# Returns the TensorMeta of a tensor, and any other leaf unchanged.
def _outline(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return TensorMeta.of(leaf)
    return leaf


def _chunks(leaves: Sequence[Any]) -> Iterator[list[int]]:
    """Yields the positions of tensors in `leaves`, in groups of at most _CHUNK_BYTES unless one is
    larger."""
    chunk: list[int] = []
    size = 0
    for at, leaf in enumerate(leaves):
        if not isinstance(leaf, TensorMeta):
            continue
        if chunk and size + leaf.bytes > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(at)
        size += leaf.bytes
    if chunk:
        yield chunk
