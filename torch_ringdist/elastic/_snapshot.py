"""What a State was at one moment, so that it can be that again."""

from __future__ import annotations

import copy
from typing import Any, NoReturn

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
        self._sums: list[str] = []  # of guarded tensors, before the first step of a generation

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
        self._tree, self._leaves, self._sums = tree, kept, []

    def begin(self) -> None:
        """A generation. Until the next take() a guarded tensor may be written to, if it ends as it
        was: DDP gives all ranks the parameters that they have already."""
        if self._guards:
            self._sums = [_sums_of(leaf) for leaf in self._tensors()]

    def put_back(self) -> None:
        """Raises ArgumentError, with nothing changed, where a guarded tensor is another one now."""
        self.check()
        self._part.write(self.tree())
        if self._guards:
            sums = self._sums
            self.take()
            self._sums = sums

    def check(self) -> None:
        """Raises ArgumentError where a guarded tensor has changed."""
        if not self._guards:
            return
        leaves, tree = pytree.tree_flatten(self._part.read())
        if tree != self._tree:
            self._refuse("what there is")
        guarded = [at for at, version in enumerate(self._versions) if version >= 0]
        for place, at in enumerate(guarded):
            now, then = leaves[at], self._leaves[at]
            written = now._version != self._versions[at] or now.data_ptr() != then.data_ptr()
            if written and not (self._sums and _sums_of(now) == self._sums[place]):
                self._refuse(self.named()[at][0])

    def _tensors(self) -> list[torch.Tensor]:
        pairs = zip(self._leaves, self._versions, strict=True)
        return [leaf for leaf, version in pairs if version >= 0]

    def _refuse(self, what: str) -> NoReturn:
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
            path: _sums_of(leaf) if isinstance(leaf, torch.Tensor) else _text_of(leaf)
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


def _text_of(value: Any) -> str:
    """Of what is no tensor; the same in all processes, or empty."""
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(repr, value)))
    return "" if type(value).__repr__ is object.__repr__ else repr(value)


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
