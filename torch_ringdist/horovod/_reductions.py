"""Reduction operators of Horovod, and Adasum."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from torch_ringdist._errors import ArgumentError


class ReduceOp(enum.IntEnum):
    """Reduction operators with Horovod's numbers."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Adasum = ReduceOp.Adasum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product


def chosen(op: ReduceOp | int | None, average: bool | None) -> ReduceOp:
    """Returns the operator that both arguments select; `average` is the older one. The default is
    Average.

    Raises:
        ValueError: both are given, or the op does not exist.
    """
    if op is not None and average is not None:
        raise ArgumentError("op and average are both given: op alone says all; omit average")
    if op is None:
        return Sum if average is False else Average
    if isinstance(op, ReduceOp):
        return op
    try:
        return ReduceOp(op)
    except ValueError:
        raise ArgumentError(
            f"op must be one of {', '.join(f'hvd.{one.name}' for one in ReduceOp)}, got {op!r}"
        ) from None


def adasum(parts: Tensor) -> Tensor:
    """Combines vectors, one per rank, in pairs in rank order, and then their results.

    Orthogonal vectors are added, and parallel ones averaged, by a (1 - a.b / 2 a.a) + b (1 - a.b /
    2 b.b). Products are computed in fp64. Source: Maleki et al., "Scaling Distributed Training with
    Adaptive Summation" (2020), arXiv 2006.02924.

    Args:
        parts: any floating dtype, shape [ranks, ...].

    Returns:
        A tensor of shape [...] with that dtype.
    """
    level = [part.double() for part in parts]
    while len(level) > 1:
        pairs = [_pair(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0].to(parts.dtype)


def _pair(a: Tensor, b: Tensor) -> Tensor:
    product = (a * b).sum()
    of_a, of_b = (a * a).sum(), (b * b).sum()
    half = torch.full_like(product, 0.5)
    share_a = torch.where(of_a > 0, half * product / of_a, 0)
    share_b = torch.where(of_b > 0, half * product / of_b, 0)
    return a * (1 - share_a) + b * (1 - share_b)
