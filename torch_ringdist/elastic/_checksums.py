"""Checksums that detect accidental differences of values."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

# Number of 64-bit words per row.
_ROW = 4096
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)  # arbitrary odd constant, as a signed number


def checksums_of(tensor: torch.Tensor) -> str:
    """Returns a checksum of a tensor's bits, computed on its device at the speed of memory.

    It sums the rows of 64-bit words and the columns, each weighted by its position.
    """
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


def of_leaves(tree: Any) -> dict[str, str]:
    """Returns a checksum per leaf of the tree, by path. For tensors it covers shape, dtype and
    bits, for other values their text."""
    return {
        pytree.keystr(path): checksums_of(leaf)
        if isinstance(leaf, torch.Tensor)
        else _text_of(leaf)
        for path, leaf in pytree.tree_flatten_with_path(tree)[0]
    }


def _weighted(sums: torch.Tensor) -> torch.Tensor:
    places = torch.arange(1, sums.numel() + 1, dtype=torch.int64, device=sums.device)
    return (sums * (2 * places * _ODD + 1)).sum()  # with odd weights every single change shows


def _text_of(value: Any) -> str:
    """Returns text for a value that is not a tensor. It is equal in all processes, or empty."""
    if isinstance(value, float):  # also numpy.float64, which is a float on a rank that received it
        return repr(float(value))
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(_text_of, value)))
    if isinstance(value, torch.device):  # each rank may have its own index
        return value.type
    return "" if type(value).__repr__ is object.__repr__ else repr(value)
