"""Expected results of collectives, computed by one process from the inputs of all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

REDUCIBLE = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
MOVED_ONLY = {
    "bool": torch.bool,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
    "complex32": torch.complex32,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
# Kinds of tensors that PyTorch stores, but has no arithmetic for.
OPAQUE = {
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
    "float4_e2m1fn_x2": torch.float4_e2m1fn_x2,
    "bits8": torch.bits8,
    "bits16": torch.bits16,
}
OPS = {
    "SUM": dist.ReduceOp.SUM,
    "AVG": dist.ReduceOp.AVG,
    "MIN": dist.ReduceOp.MIN,
    "MAX": dist.ReduceOp.MAX,
    "PRODUCT": dist.ReduceOp.PRODUCT,
}


def exact_inputs(name: str, op: str, size: int, count: int, seed: int) -> torch.Tensor:
    """Returns the input of rank r in row r. Floats are such that no order of reduction rounds."""
    random = torch.Generator().manual_seed(seed)
    dtype = REDUCIBLE[name]
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        low, high = (0, 7) if op == "PRODUCT" else (info.min, info.max)
        return torch.randint(low, high, (size, count), generator=random, dtype=dtype)
    if op == "PRODUCT":
        signs = torch.randint(0, 2, (size, count), generator=random) * 2 - 1
        return (signs * 2.0 ** torch.randint(0, 3, (size, count), generator=random)).to(dtype)
    whole = torch.randint(-10, 11, (size, count), generator=random)
    # A sum of multiples of the size is a multiple of it, so the average is an integer.
    return (whole * size if op == "AVG" else whole).to(dtype)


def reduced(rows: torch.Tensor, op: str) -> torch.Tensor:
    """Reduces the rows in rank order. fp16 and bf16 are reduced as fp32 and rounded once,
    integers wrap."""
    dtype = rows.dtype
    if op == "AVG" and not dtype.is_floating_point:
        return mean_of_integers(rows)
    half = dtype in (torch.float16, torch.bfloat16)
    wide = rows.float() if half else rows
    out = wide[0].clone()
    for row in wide[1:]:
        if op in ("SUM", "AVG"):
            out += row
        elif op == "PRODUCT":
            out *= row
        else:
            out = torch.minimum(out, row) if op == "MIN" else torch.maximum(out, row)
    if op == "AVG":
        out = out / len(rows)
    return out.to(dtype)


def mean_of_integers(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the mean from sums that do not wrap, truncated toward zero."""
    size, first = len(rows), rows[0]
    sums = [sum(column) for column in zip(*(row.reshape(-1).tolist() for row in rows), strict=True)]
    means = [abs(total) // size * (1 if total >= 0 else -1) for total in sums]
    return torch.tensor(means, dtype=first.dtype).reshape(first.shape)


def any_bits(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Returns random bytes as `dtype`, with valid ones for bool."""
    random = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=random).bool()
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, width), generator=random, dtype=torch.uint8)
    return raw.view(dtype).reshape(shape) if raw.numel() else torch.empty(shape, dtype=dtype)
