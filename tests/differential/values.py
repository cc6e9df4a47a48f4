"""Contents of tensors, results of reductions, and memory layouts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from support.reference import MOVED_ONLY, OPAQUE, REDUCIBLE, any_bits, mean_of_integers

DTYPES = {**REDUCIBLE, **MOVED_ONLY, **OPAQUE}
LAYOUTS = ["contiguous", "offset", "strided", "transposed"]

_ORDERED = ["SUM", "AVG", "PRODUCT", "MIN", "MAX"]
_BITS = ["BAND", "BOR", "BXOR"]
_FLOATS = ["float64", "float32", "float16", "bfloat16"]
_INTEGERS = ["int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"]
# Reductions for each dtype. PyTorch rejects products of complex numbers. Sums of three multiples of
# 3 are not exact in e5m2, which has two bits.
REDUCTIONS = {
    **{name: [*_ORDERED, "PREMUL_SUM"] for name in _FLOATS},
    **{name: [*_ORDERED, *_BITS, "PREMUL_SUM"] for name in _INTEGERS},
    "bool": ["SUM", "PRODUCT", "MIN", "MAX", *_BITS],
    **{name: ["SUM", "AVG"] for name in ("complex64", "complex128")},
    "float8_e4m3fn": _ORDERED,
    "float8_e5m2": ["SUM", "PRODUCT", "MIN", "MAX"],
}
# Sums of three such values are exact in any order in the format with the fewest bits.
_LARGEST = {"float8_e4m3fn": 5, "float8_e5m2": 1, "bfloat16": 40}


def noise(*numbers: int) -> torch.Generator:
    """Returns a generator that is the same on every rank for the same numbers."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (1 << 61)
    return torch.Generator().manual_seed(seed)


def moved(name: str, shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    """Returns a tensor of random bits."""
    seed = int(torch.randint(0, 1 << 31, (), generator=random))
    return any_bits(DTYPES[name], shape, seed)


def reducible(
    name: str, reduction: str, size: int, shape: tuple[int, ...], random: torch.Generator
) -> torch.Tensor:
    """Returns a contiguous tensor with values that no reduction over `size` ranks rounds, in any
    order."""
    dtype = DTYPES[name]
    if dtype.is_complex:
        parts = [_whole(30, shape, random).double() for _ in range(2)]
        return (torch.complex(*parts) * (size if reduction == "AVG" else 1)).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=random).bool()
    if not dtype.is_floating_point:
        return _integers(name, reduction, shape, random)
    if reduction == "PRODUCT":
        signs = torch.randint(0, 2, shape, generator=random) * 2 - 1
        return (signs * 2.0 ** torch.randint(0, 3, shape, generator=random)).to(dtype)
    if reduction == "AVG":
        return (_whole(1 if dtype.itemsize == 1 else 20, shape, random) * size).to(dtype)
    largest = 10 if reduction == "PREMUL_SUM" else _LARGEST.get(name, 100)
    return _whole(largest, shape, random).to(dtype)


def _whole(largest: int, shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    return torch.randint(-largest, largest + 1, shape, generator=random)


def _integers(name: str, reduction: str, shape: tuple[int, ...], random: torch.Generator):
    info = torch.iinfo(DTYPES[name])
    low, high = max(info.min, -(1 << 63)), min(info.max, (1 << 63) - 1)
    if reduction == "PREMUL_SUM":
        low, high = max(low, -5), 5
    return torch.randint(low, high, shape, generator=random).to(DTYPES[name])


def factor(rank: int) -> int:
    """Returns the factor by which PREMUL_SUM multiplies the input of `rank`."""
    return rank + 2


def reduced(rows: list[torch.Tensor], reduction: str) -> torch.Tensor:
    """Reduces the rows, one per rank. Integers wrap, except for their mean, which is truncated."""
    dtype = rows[0].dtype
    if reduction == "AVG" and not dtype.is_floating_point and not dtype.is_complex:
        return mean_of_integers(rows)
    exact = torch.float64 if dtype.is_floating_point else torch.int64
    wide = [row.to(torch.complex128 if dtype.is_complex else exact) for row in rows]
    if reduction == "PREMUL_SUM":
        wide = [row * factor(rank) for rank, row in enumerate(wide)]
    out = wide[0].clone()
    for row in wide[1:]:
        out = _COMBINE[reduction](out, row)
    if reduction == "AVG":
        out = out / len(rows)
    return out.to(dtype)


_COMBINE = {
    **dict.fromkeys(["SUM", "AVG", "PREMUL_SUM"], torch.add),
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory as a dtype that every kernel supports, with the same shape and strides."""
    plain = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(plain[tensor.element_size()]) if tensor.element_size() < 16 else tensor


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    # contiguous() would keep any stride of a dimension of one element, and view() rejects that.
    packed = bits(tensor).clone(memory_format=torch.contiguous_format)
    return packed.view(-1).view(torch.uint8)


def zeros(dtype: torch.dtype, shape: tuple[int, ...], device: str = "cpu") -> torch.Tensor:
    """Does the same as torch.zeros, also for dtypes that it does not support."""
    count = torch.Size(shape).numel()
    memory = torch.zeros(count * dtype.itemsize, dtype=torch.uint8, device=device)
    return memory.view(dtype).view(shape)


@dataclass
class Box:
    """A tensor for an operation, with memory around it that must stay zero."""

    tensor: torch.Tensor
    memory: torch.Tensor

    @classmethod
    def of(cls, content: torch.Tensor, layout: str, device: str = "cpu") -> Box:
        """Copies `content` to the device in the given layout. `content` is contiguous and on the
        CPU."""
        shape, count, dtype = content.shape, content.numel(), content.dtype
        if layout == "offset":
            memory = zeros(dtype, (count + 5,), device)
            tensor = memory[2 : 2 + count].view(shape)
        elif layout == "strided":
            memory = zeros(dtype, (count, 2), device)
            tensor = memory[:, 1].view(shape)
        elif layout == "transposed" and len(shape) > 1:
            memory = zeros(dtype, (count,), device)
            tensor = memory.view(shape[::-1]).permute(*reversed(range(len(shape))))
        else:
            memory = zeros(dtype, (count,), device)
            tensor = memory.view(shape)
        bits(tensor).copy_(bits(content))
        return cls(tensor, memory)

    def differs(self, expected: torch.Tensor) -> str:
        """Returns the first difference from `expected`, or ""."""
        if self.tensor.shape != expected.shape or self.tensor.dtype != expected.dtype:
            return f"became {self.tensor.dtype}{list(self.tensor.shape)}"
        got, wanted = _flat_bytes(self.tensor).cpu(), _flat_bytes(expected)
        wrong = (got != wanted).nonzero()
        if len(wrong):
            at = int(wrong[0]) // expected.element_size()
            pair = [bits(t).reshape(-1)[at].item() for t in (self.tensor, expected)]
            return (
                f"element {at} of {expected.numel()} has bits {pair[0]}, expected {pair[1]} "
                f"({len(wrong)} bytes differ)"
            )
        inside = int(bits(expected).count_nonzero())
        if int(bits(self.memory).count_nonzero()) != inside:
            return "memory beside the tensor was written"
        return ""
