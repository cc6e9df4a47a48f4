"""Copies of the parts of a State, to restore it later."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_ringdist.elastic import _checksums
from torch_ringdist.elastic._parts import Part, Tree

_LEAF = pytree.tree_structure(0)  # structure of a tree that is a single leaf


class Snapshot:
    """Keeps a copy of a part. MutationDetector has the same functions and keeps no copy."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._tree: Any = None  # its shape
        self._leaves: list[Any] = []

    def take(self) -> None:
        """Copies the present contents, into the memory of the previous copy if it fits."""
        content = self._part.read()
        if self._part.fresh:
            self._leaves, self._tree = [content], _LEAF
            return
        leaves, tree = pytree.tree_flatten(content)
        self._leaves = self._copied(leaves, self._leaves if tree == self._tree else [])
        self._tree = tree

    def begin(self) -> None:
        """Starts a generation. DDP may overwrite parameters with equal values until the next
        take()."""

    def put_back(self) -> None:
        """Restores the copy. Raises ArgumentError, with nothing changed, if that is not
        possible."""
        self._part.write(self.tree())

    def check(self) -> None:
        """Raises as put_back() without changing anything."""

    def tree(self) -> Tree:
        return pytree.tree_unflatten(self._leaves, self._tree)

    def hashes(self) -> dict[str, str]:
        return _checksums.of_leaves(self.tree())

    @staticmethod
    def _copied(leaves: list[Any], into: list[Any]) -> list[Any]:
        """Returns copies of the leaves, in the memory of tensors of `into` with the same shape,
        dtype and device."""
        kept: list[Any] = []
        sources: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []
        into = into or [None] * len(leaves)
        for leaf, place in zip(leaves, into, strict=True):
            if not isinstance(leaf, torch.Tensor):
                kept.append(copy.deepcopy(leaf))
            elif _fits(place, leaf):
                sources.append(leaf.detach())
                targets.append(place)
                kept.append(place)
            else:
                kept.append(leaf.detach().clone())
        if targets:
            torch._foreach_copy_(targets, sources)
        return kept


def _fits(place: Any, leaf: torch.Tensor) -> bool:
    return (
        isinstance(place, torch.Tensor)
        and place.shape == leaf.shape
        and place.dtype == leaf.dtype
        and place.device == leaf.device
    )
