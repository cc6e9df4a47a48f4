"""From the rank that is furthest, what others need to go on from there."""

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

# At once on their way. Ranks that need nothing receive into as much, and let it go.
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class StateSkeleton:
    """All but the tensors, in place of which it has Places; and what newcomers owe."""

    steps: int
    training: str  # its id
    trees: dict[str, Tree]
    owed: list[dict[str, Any]]


def transfer(state: State, company: GenerationView) -> None:
    """All ranks call it. Where it raises, the state is as it was."""
    rank, source = dist.get_rank(), company.source
    needed, first = company.needs_state(rank), not company.has_trained
    mine, outline = None, None
    if rank == source:
        mine = state._given()
        # What a checkpoint has of them is shared out; else they stay whose they are.
        owed = state._residuals.owed() if first else state._residuals.without_tensors()
        trees = pytree.tree_map(_outline, mine)
        outline = StateSkeleton(state.steps, state._identify(), trees, owed)
    objects = [outline]
    dist.broadcast_object_list(objects, src=source)
    outline = objects[0]
    assert outline is not None
    leaves, shape = pytree.tree_flatten(outline.trees)
    own = pytree.tree_leaves(mine)
    for chunk in _chunks(leaves):
        tensors = [
            # The source's, too, are written.
            own[at].clone() if rank == source else leaves[at].allocate()
            for at in chunk
        ]
        dist._broadcast_coalesced(dist.group.WORLD, tensors, _CHUNK_BYTES, source)
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


def _outline(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return TensorMeta.of(leaf)
    return leaf


def _chunks(leaves: Sequence[Any]) -> Iterator[list[int]]:
    """Where in `leaves` Places are, so many at a time."""
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
