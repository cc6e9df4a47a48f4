"""The compared ways to reduce, as text, and the bytes that each should send:

    gloo                  another backend, as in PyTorch
    gloo+fp16             cast before and after, outside the collective, like PyTorch's hook
    ringdist              uncompressed
    ringdist@tcp          over that transport
    ringdist/direct       with that algorithm
    ringdist:int4         compressed inside the collective; ringdist:onebit>int4 with two codecs
    ringdist/ring:int8    both
    openmpi               through mpi4py, for timed operations
    tcp                   plain sockets that move the bytes of an uncompressed allreduce

The last one is the bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TCP = "tcp"
OPENMPI = "openmpi"
CASTS = ("fp16", "bf16")
RATE_CODECS = {  # bits per element, with its part of the block's scale
    "fp16": 16.0,
    "bf16": 16.0,
    "fp8": 8 + 16 / 128,
    "int8": 8 + 16 / 128,
    "int4": 4 + 16 / 128,
    "int2": 2 + 16 / 128,
    "onebit": 1 + 16 / 256,
}
SPARSE_BLOCK = 1024
SPARSE_CODECS = {"topk": 32.0, "randomk": 16.0}  # bits per sent element
# Codecs that lose too much to work without error feedback.
FED_BACK = ("int4", "int2", "onebit", "topk")


@dataclass(frozen=True)
class Variant:
    """A way to reduce. It is hashable, and equal to variants with the same text."""

    text: str
    backend: str
    transport: str = ""
    algorithm: str = ""
    codec: str = ""
    cast: str = ""

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Parses the text. Raises ValueError."""
        head, cast = text, ""
        if text.endswith(tuple(f"+{name}" for name in CASTS)):
            head, cast = text.rsplit("+", 1)
        match = re.fullmatch(r"([a-z]\w*)(?:@([a-z]\w*))?(?:/([a-z]\w*))?(?::(.+))?", head)
        if not match:
            raise ValueError(
                f"variant {text!r}: expected backend[@transport][/algorithm][:codec][+fp16|+bf16]"
            )
        backend, transport, algorithm, codec = (part or "" for part in match.groups())
        if backend != "ringdist" and (transport or algorithm or codec):
            raise ValueError(
                f"variant {text!r}: only ringdist has transports, algorithms and codecs"
            )
        if codec and cast:
            raise ValueError(f"variant {text!r}: a codec or a cast, not both")
        if backend in (TCP, OPENMPI) and cast:
            raise ValueError(f"variant {text!r}: {backend} cannot cast")
        return cls(text, backend, transport, algorithm, codec, cast)

    @property
    def group(self) -> tuple[str, str, str]:
        """Backend, transport and algorithm of the group; variants with the same ones share it."""
        return self.backend, self.transport, self.algorithm

    @property
    def feeds_back(self) -> bool:
        return any(name.startswith(FED_BACK) for name in self.codec.split(">"))

    def payload(self, count: int, itemsize: int, world: int) -> float | None:
        """Returns the bytes that a rank should send for an allreduce of `count` elements, without
        headers.

        Returns None if they depend on values, or for codecs without an entry here.
        """
        both = self.bits(8 * itemsize, world)
        return None if both is None else (world - 1) / world * count * sum(both) / 8

    def bits(self, full: float, world: int) -> tuple[float, float] | None:
        """Returns bits per element of a contribution and of the result, or None."""
        if self.cast:
            return 16.0, 16.0
        if not self.codec or self.codec == "none":
            return full, full
        first, arrow, second = self.codec.partition(">")
        there = _codec_bits(first, full)
        if arrow:
            back = _codec_bits(second, full)
        elif first.startswith("topk") and there is not None:
            back = min(4, world) * there
        else:
            back = there
        return None if there is None or back is None else (there, back)


def _codec_bits(text: str, full: float) -> float | None:
    name, _, parameter = text.removesuffix("+h").partition(":")
    if name == "none":
        return full
    if name in SPARSE_CODECS and parameter:
        share = float(parameter)
        kept = max(1, round(share * SPARSE_BLOCK if share < 1 else share))
        return SPARSE_CODECS[name] * kept / SPARSE_BLOCK
    return RATE_CODECS.get(name)
