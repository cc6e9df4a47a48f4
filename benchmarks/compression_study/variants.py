"""Compression of a run, as text: codec[/no-ef][/warmup=STEPS]."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import nn

from torch_ringdist import _native, _rules

# Elements, rows, codec, and error feedback, as LocalRanks takes them.
Part = tuple[int, int, str, bool]

UNCOMPRESSED = "none"


@dataclass(frozen=True)
class Variant:
    codec: str
    feedback: bool = True  # applies to codecs that have it by default
    warmup: int = 0  # number of uncompressed steps at the beginning

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Parses the text. Raises ValueError for an unknown flag. The codec is checked when it
        runs."""
        codec, *flags = text.split("/")
        feedback, warmup = True, 0
        for flag in flags:
            if flag == "no-ef":
                feedback = False
            elif match := re.fullmatch(r"warmup=(\d+)", flag):
                warmup = int(match[1])
            else:
                raise ValueError(f"{text!r}: expected codec[/no-ef][/warmup=STEPS]")
        return cls(codec, feedback, warmup)

    @property
    def family(self) -> str:
        """Returns the codec's name without parameters, rotation and the codec of sums."""
        return re.split(r"[:+>]", self.codec, maxsplit=1)[0]

    @property
    def slow(self) -> bool:
        """True if it is compared after more steps than the uncompressed run, not at equal steps."""
        return self.feedback and self.family in ("onebit", "topk", "randomk", "powersgd")

    def feeds_back(self, size: int) -> bool:
        return self.feedback and _native.load().codec_traits(self.codec, size)[2]


def parts_of(
    model: nn.Module, order: list[nn.Parameter], variant: Variant, size: int
) -> list[Part]:
    """Returns the parts of a buffer with the gradients in `order`, like those of the DDP hook."""
    native = _native.load()
    rules = {r.parameter: r for r in _rules.resolve(model, None, native.MIN_COMPRESSED)}
    _, own_bits, _ = native.codec_traits(variant.codec, size)
    parts: list[Part] = []
    for parameter in order:
        rule, codec = rules[parameter], variant.codec
        if rule.codec:
            codec = rule.codec
        elif rule.coarsest and own_bits < native.codec_traits(rule.coarsest, size)[1]:
            codec = rule.coarsest
        name, _, feedback = native.codec_traits(codec, size)
        rows = parameter.shape[0] if parameter.dim() else 1
        parts.append((parameter.numel(), rows, name, feedback and variant.feedback))
    return parts
