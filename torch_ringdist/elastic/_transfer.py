"""Transfers the state of the most advanced rank to ranks that need it, and residuals of ranks that
leave."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from torch_ringdist._arguments import check_state
from torch_ringdist._tensor_meta import TensorMeta
from torch_ringdist.elastic import _checkpoint, _messages
from torch_ringdist.elastic._parts import Tree

if TYPE_CHECKING:
    from torch_ringdist.elastic._rank_state import GenerationView
    from torch_ringdist.elastic._state import State

# Bytes that are broadcast at once. Ranks that need nothing receive into temporary memory of this
# size.
_CHUNK_BYTES = 64 << 20
_OWED = frozenset({"version", "steps", "scale", "world_size", "residuals"})


def transfer(state: State, company: GenerationView) -> None:
    """Sends the state of the source to all ranks that need it. All ranks call it.

    If it raises, the state of this rank is unchanged.

    Raises:
        MessageError: the source has sent something else.
        ArgumentError: this rank is the source, and the State has a value that cannot be sent.
    """
    rank, source = dist.get_rank(), company.source
    needed, first = company.needs_state(rank), not company.has_trained
    mine = None
    if rank == source:
        # Residuals of a checkpoint are shared out to all ranks; otherwise each rank keeps its own.
        owed = state._residuals.owed() if first else state._residuals.without_tensors()
        state._refuse_unknown()
        mine = {"training": state._identify(), "trees": state._given(), "owed": owed}
    check = functools.partial(check_content, state)
    content = _send_tree(mine, source, "a State like its own", check, needed, state._trusts)
    if needed:
        steps = company.standings[source].steps
        state._replace(content["trees"], steps, content["training"])
    if first:
        state._residuals.replace(content["owed"], dist.get_world_size())
    elif not company.standings[rank].veteran:
        state._residuals.replace(content["owed"])
    elif needed:
        state._residuals.adopt(content["owed"])


def hand_over(state: State, company: GenerationView, heir: int) -> dict[str, Any]:
    """Sends the residuals of ranks that leave. All ranks call it.

    Returns:
        The argument of Residuals.receive_all(). It is complete on rank `heir` only.

    Raises:
        MessageError: a rank that leaves has sent something else.
    """
    rank, handed = dist.get_rank(), {}
    for one in company.leaving:
        if company.standings[one].veteran:  # others have no residuals
            mine = state._residuals.hand_over() if rank == one else None
            given = _send_tree(mine, one, "the residuals of a rank", _check_handed, rank == heir)
            handed[company.standings[one].id] = given
    return handed


def _send_tree(
    tree: Tree, source: int, what: str, check: _messages.Check, keeps: bool, trusts: bool = False
) -> Tree:
    """Sends a tree with its tensors from one rank to all.

    Args:
        tree: the tree on the source; ignored on other ranks.
        source: rank that sends.
        what: description of the tree for errors.
        check: check of the tree, which has a TensorMeta in place of each tensor.
        keeps: this rank needs the tensors.
        trusts: pickle values of other types.

    Returns:
        The tree; with a TensorMeta in place of each tensor if this rank does not keep them.
    """
    sends = dist.get_rank() == source
    outline = _messages.broadcast(tree, source, what, check, trusts)
    own, shape = pytree.tree_flatten(outline, is_leaf=_messages.is_leaf)
    leaves = [_outline(leaf) for leaf in own] if sends else own
    world = dist.group.WORLD
    assert world is not None
    for chunk in _chunks(leaves):
        tensors = [
            # The broadcast also writes the tensors of the source.
            own[at].clone() if sends else leaves[at].allocate()
            for at in chunk
        ]
        dist._broadcast_coalesced(world, tensors, _CHUNK_BYTES, source)
        if keeps and not sends:
            for at, tensor in zip(chunk, tensors, strict=True):
                leaves[at] = tensor
    return tree if sends else pytree.tree_unflatten(leaves, shape)


def check_content(state: State, content: Any) -> None:
    """Raises ValueError unless transfer() can use the content, which another rank has sent."""
    if type(content) is not dict or content.keys() != {"training", "trees", "owed"}:
        raise ValueError("no training, trees and residuals")
    _checkpoint.check_training(content["training"])
    trees, parts = content["trees"], state._parts
    if type(trees) is not dict or trees.keys() != {name for name in parts if parts[name].given}:
        raise ValueError("other entries")
    for name, tree in trees.items():
        parts[name].check(name, tree)
    _check_owed(content["owed"])


def _check_handed(handed: Any) -> None:
    """Raises ValueError unless the value has the form of Residuals.hand_over()."""
    if type(handed) is not tuple or len(handed) != 2 or type(handed[1]) is not set:
        raise ValueError("no residuals with ids")
    for one in handed[1]:
        _messages.check_text(one)
    _check_owed(handed[0])


def _check_owed(owed: Any) -> None:
    """Raises ValueError unless the value has the form of Residuals.owed()."""
    if type(owed) is not list:
        raise ValueError("no list of residuals")
    for one in owed:
        if type(one) is not dict or one.keys() != _OWED or type(one["residuals"]) is not dict:
            raise ValueError("no residuals")
        try:
            check_state({**one, "residuals": {}})
        except TypeError as error:
            raise ValueError(str(error)) from error
        for name, meta in one["residuals"].items():
            _messages.check_text(name)
            if type(meta) is not TensorMeta or not meta.dtype.is_floating_point:
                raise ValueError("residuals that are no tensors of floats")


# Returns the TensorMeta of a tensor, and any other leaf unchanged.
def _outline(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and _messages.travels(leaf):
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
