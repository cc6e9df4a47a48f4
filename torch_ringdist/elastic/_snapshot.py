"""What a State was at one moment, so that it can be that again."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_ringdist._errors import ArgumentError
from torch_ringdist.elastic._parts import Part, Tree


class Snapshot:
    """Of one part. What it keeps is a copy, but for the tensors of a guarded part that is not
    copied: of these it knows the version, and so whether they have changed since."""

    def __init__(self, name: str, part: Part, copied: bool) -> None:
        self._name, self._part = name, part
        self._guards = part.guarded and not copied
        self._tree: Any = None  # its shape
        self._leaves: list[Any] = []
        self._versions: list[int] = []  # of leaves that are guarded tensors; else -1

    def take(self) -> None:
        """Of now. Memory of the one before is used again where it fits."""
        leaves, tree = pytree.tree_flatten(self._part.read())
        if self._guards:
            self._versions = [
                leaf._version if isinstance(leaf, torch.Tensor) else -1 for leaf in leaves
            ]
            kept = [
                copy.deepcopy(leaf) if version < 0 else leaf
                for leaf, version in zip(leaves, self._versions, strict=True)
            ]
        else:
            kept = self._copied(leaves, self._leaves if tree == self._tree else [])
        self._tree, self._leaves = tree, kept

    def take_versions(self) -> None:
        """Guarded tensors were written to, and have not changed."""
        if self._guards:
            self.take()

    def put_back(self) -> None:
        """Raises ArgumentError, with nothing changed, where a guarded tensor is another one now."""
        self.check()
        self._part.write(self.tree())
        if self._guards:
            self.take()

    def check(self) -> None:
        if not self._guards:
            return
        leaves, tree = pytree.tree_flatten(self._part.read())
        changed = [
            version >= 0 and (now._version != version or now.data_ptr() != then.data_ptr())
            for now, then, version in zip(leaves, self._leaves, self._versions, strict=False)
        ]
        if tree == self._tree and not any(changed):
            return
        what = self.named()[changed.index(True)][0] if any(changed) else "what there is"
        raise ArgumentError(
            f"ringdist: State(copy=False): {what} of {self._name} has changed since the last "
            "commit(), so the step that failed cannot be undone: all collectives of a step must "
            "come before optimizer.step(), or copy=True keep a copy"
        )

    def tree(self) -> Tree:
        return pytree.tree_unflatten(self._leaves, self._tree)

    def hashes(self) -> dict[str, str]:
        """Of each leaf, by its path: of a tensor's shape, dtype and bits, of a value's text."""
        return {
            path: _sums_of(leaf) if isinstance(leaf, torch.Tensor) else repr(leaf)
            for path, leaf in self.named()
        }

    def named(self) -> list[tuple[str, Any]]:
        leaves = pytree.tree_flatten_with_path(self.tree())[0]
        return [(pytree.keystr(path), leaf) for path, leaf in leaves]

    @staticmethod
    def _copied(leaves: list[Any], into: list[Any]) -> list[Any]:
        """Of each a copy, in the memory of `into` where that is a tensor of the same kind."""
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


# Words in a row of _sums_of().
_ROW = 4096
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # of no meaning; as a signed number


def _sums_of(tensor: torch.Tensor) -> str:
    """Text that tells apart what differs by accident, at the speed of memory and on the tensor's
    device: sums of its rows of 64-bit words, and of the columns, each weighted by its place."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = flat.numel() // (8 * _ROW) * (8 * _ROW)
    tail = torch.zeros(8 * _ROW, dtype=torch.uint8, device=flat.device)
    tail[: flat.numel() - whole] = flat[whole:]
    sums = [0, 0]
    for part in (flat[:whole], tail):
        if part.numel() == 0:
            continue
        if part.data_ptr() % 8:
            part = part.clone()
        words = part.view(torch.int64).view(-1, _ROW)
        for at, dimension in enumerate((1, 0)):
            sums[at] = sums[at] * 31 + int(_weighted(words.sum(dimension)))
    return f"{list(tensor.shape)} {tensor.dtype} {sums[0] % (1 << 64):x} {sums[1] % (1 << 64):x}"


def _weighted(sums: torch.Tensor) -> torch.Tensor:
    places = torch.arange(1, sums.numel() + 1, device=sums.device)
    return (sums * (2 * places * _ODD + 1)).sum()  # odd weights: no single change is lost
