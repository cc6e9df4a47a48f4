"""What `tune` measures, what the constants of a link predict for it, and the constants that fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from torch_ringdist._costs import Link
from torch_ringdist._units import format_bytes

SMALL = 8  # bytes
_LEAST_HOP = 0.05  # of an operation that waits for one, whatever its call takes


class Kind(Enum):
    """How messages are exchanged; the values are words for people."""

    STREAM = "stream"  # of messages, one way; time of each
    BOTH = "both ways"  # the same, both ways at once; of one out and one in
    CROWD = "all pairs"  # the same by all pairs of processes at once
    ONE_HOP = "one hop"  # an operation in which a message is waited for
    TWO_HOPS = "two hops"  # one in which two are, one after the other
    HOP = "hop"  # what the second of them took


@dataclass(frozen=True)
class Sample:
    """What took how long, at best."""

    kind: Kind
    bytes: int
    ns: float
    pairs: int = 1

    @property
    def name(self) -> str:
        return f"{self.kind.value} of {format_bytes(self.bytes)}"


def without_calls(measured: Sequence[Sample]) -> list[Sample]:
    """Python and the engine have their share of a call, which is not the link's: two hops less one
    are a hop. None where one took about as long as two: noise, of which nothing can be said."""
    hops = {each.kind: each.ns for each in measured if each.kind in (Kind.ONE_HOP, Kind.TWO_HOPS)}
    hop = hops[Kind.TWO_HOPS] - hops[Kind.ONE_HOP]
    others = [each for each in measured if each.kind not in hops]
    if hop < _LEAST_HOP * hops[Kind.ONE_HOP]:
        return others
    return [*others, Sample(Kind.HOP, SMALL, hop)]


@dataclass(frozen=True)
class Model:
    """The constants of a link, in nanoseconds and nanoseconds per byte."""

    latency: float
    line: float
    copy: float
    message: float
    framing: int
    inside: bool  # a host: its line is used both ways

    def predict(self, sample: Sample) -> float:
        """Of what without_calls() gives."""
        end = self.message + sample.bytes * self.copy
        line = (sample.bytes + self.framing) * self.line
        if sample.kind is Kind.HOP:
            return 2 * end + self.latency + line
        if sample.kind is Kind.STREAM:
            return max(end, line)
        return max(2 * end, (2 * sample.pairs if self.inside else 1) * line)

    def link(self) -> Link:
        return Link(self.latency, 1e9 / self.line, 1e9 / self.copy, self.message, self.framing)


@dataclass(frozen=True)
class Fit:
    """The constants, and how far they are off."""

    model: Model
    samples: Sequence[Sample]

    def off(self, sample: Sample) -> float:
        """What is predicted by what was measured, - 1."""
        return self.model.predict(sample) / sample.ns - 1

    @property
    def typical(self) -> float:
        """Root of the mean square of logarithms."""
        return math.expm1(math.sqrt(_misfit(self.model, self.samples) / len(self.samples)))

    @property
    def worst(self) -> Sample:
        return max(self.samples, key=lambda sample: abs(math.log1p(self.off(sample))))


_FREE = ("latency", "line", "copy", "message")
# Of how far a constant is from the one that is built in, by how far a time is: enough to hold what
# no time depends on, as a message's cost where the line is slow.
_HELD = 0.002
_FINEST = 1.0005


def fit(measured: Sequence[Sample], built_in: Link, inside: bool) -> Fit:
    """Least squares over logarithms, so that small and large times count alike. What the times say
    nothing of stays as it is built in."""
    samples = without_calls(measured)
    prior = Model(
        latency=max(1.0, built_in.latency_ns),
        line=1e9 / built_in.bytes_per_second,
        copy=1e9 / built_in.copied_per_second,
        message=max(1.0, built_in.per_message_ns),
        framing=built_in.framing_bytes,
        inside=inside,
    )
    ends = [_descend(start, prior, samples) for start in _starts(prior, samples)]
    return Fit(min(ends, key=lambda model: _error(model, prior, samples)), samples)


def _starts(prior: Model, samples: Sequence[Sample]) -> list[Model]:
    """Whether the line or its ends limit a stream is not known beforehand: one start for each."""
    largest = max(
        (sample for sample in samples if sample.kind is Kind.STREAM), key=lambda each: each.bytes
    )
    each = largest.ns / largest.bytes
    shares = ((1.0, 0.1), (1.0, 0.5), (1.0, 1.0), (0.5, 1.0))
    return [prior, *(replace(prior, line=each * a, copy=each * b) for a, b in shares)]


def _misfit(model: Model, samples: Sequence[Sample]) -> float:
    """Sum of squares of the logarithms of predicted by measured."""
    return sum(math.log(model.predict(sample) / sample.ns) ** 2 for sample in samples)


def _error(model: Model, prior: Model, samples: Sequence[Sample]) -> float:
    """What is to be least. A memory's line beyond what all processes put in at once nobody saw."""
    processes = 2 * max(sample.pairs for sample in samples)
    if model.inside and model.line * processes < model.copy:
        return math.inf
    far = sum(math.log(getattr(model, name) / getattr(prior, name)) ** 2 for name in _FREE)
    return _misfit(model, samples) + _HELD * far


def _descend(model: Model, prior: Model, samples: Sequence[Sample]) -> Model:
    """By smaller and smaller factors, as long as that fits better."""
    best, factor = _error(model, prior, samples), 2.0
    while factor > _FINEST:
        trials = [(_error(each, prior, samples), each) for each in _neighbours(model, factor)]
        error, trial = min(trials, key=lambda each: each[0])
        if error < best - 1e-12:
            model, best = trial, error
        else:
            factor = math.sqrt(factor)
    return model


def _neighbours(model: Model, factor: float) -> Iterator[Model]:
    """One constant is another; or two are, as valleys may lie askew."""
    for one in _FREE:
        for step in (factor, 1 / factor):
            moved = replace(model, **{one: getattr(model, one) * step})
            yield moved
            for other in _FREE:
                if other != one:
                    yield replace(moved, **{other: getattr(moved, other) / factor})
