"""Samples of `tune`, the cost model that predicts them, and the fit of its constants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from torch_ringdist._costs import Link
from torch_ringdist._units import format_bytes

SMALL = 8  # bytes
_LEAST_HOP = 0.05  # smallest share of a hop in a one-hop operation that counts as a signal


class Kind(Enum):
    """How messages are exchanged; the values are printed."""

    STREAM = "stream"  # messages in one direction; time per message
    BOTH = "both ways"  # both directions at once; time per pair of messages
    CROWD = "all pairs"  # both directions, by all pairs of processes at once
    ONE_HOP = "one hop"  # operation that waits for one message
    TWO_HOPS = "two hops"  # operation that waits for two messages in sequence
    HOP = "hop"  # time of the second message alone


@dataclass(frozen=True)
class Sample:
    """Least time in nanoseconds of one kind of exchange."""

    kind: Kind
    bytes: int
    ns: float
    pairs: int = 1

    @property
    def name(self) -> str:
        return f"{self.kind.value} of {format_bytes(self.bytes)}"


def without_calls(measured: Sequence[Sample]) -> list[Sample]:
    """Replaces the samples of one and two hops by their difference, the time of one hop.

    This removes the time that Python and the engine take for a call. If both took about the same
    time, the difference is noise and no hop is returned.
    """
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
    inside: bool  # inside a host, where both directions share the line

    def predict(self, sample: Sample) -> float:
        """Returns the predicted nanoseconds of a sample of without_calls()."""
        end = self.message + sample.bytes * self.copy
        line = (sample.bytes + self.framing) * self.line
        if sample.kind is Kind.HOP:
            return 2 * end + self.latency + line
        if sample.kind is Kind.STREAM:
            return max(end, line)
        return max(2 * end, (2 * sample.pairs if self.inside else 1) * line)

    # Returns the constants as a Link.
    def link(self) -> Link:
        return Link(self.latency, 1e9 / self.line, 1e9 / self.copy, self.message, self.framing)


@dataclass(frozen=True)
class Fit:
    """The fitted constants and their errors."""

    model: Model
    samples: Sequence[Sample]

    def off(self, sample: Sample) -> float:
        """Returns the relative error of the prediction, predicted / measured - 1."""
        return self.model.predict(sample) / sample.ns - 1

    @property
    def typical(self) -> float:
        """Root mean square of the logarithmic errors, as a relative error."""
        return math.expm1(math.sqrt(_misfit(self.model, self.samples) / len(self.samples)))

    @property
    def worst(self) -> Sample:
        return max(self.samples, key=lambda sample: abs(math.log1p(self.off(sample))))


_FREE = ("latency", "line", "copy", "message")
# Weight of a constant's deviation from its built-in value, relative to that of a time. It is enough
# to keep constants that no time depends on, such as the message cost on a slow line.
_HELD = 0.002
_FINEST = 1.0005


def fit(measured: Sequence[Sample], built_in: Link, inside: bool) -> Fit:
    """Fits the constants by least squares over logarithms, so that small and large times count
    alike.

    Constants that the samples do not determine keep their built-in values.

    Args:
        measured: samples of one kind of link.
        built_in: the built-in constants.
        inside: the link is inside a host.
    """
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
    """Returns starting points for the descent.

    It is unclear beforehand if the line or its ends limit a stream, so there is one start for each
    case.
    """
    largest = max(
        (sample for sample in samples if sample.kind is Kind.STREAM), key=lambda each: each.bytes
    )
    each = largest.ns / largest.bytes
    shares = ((1.0, 0.1), (1.0, 0.5), (1.0, 1.0), (0.5, 1.0))
    return [prior, *(replace(prior, line=each * a, copy=each * b) for a, b in shares)]


def _misfit(model: Model, samples: Sequence[Sample]) -> float:
    """Returns the sum of squared logarithms of predicted / measured."""
    return sum(math.log(model.predict(sample) / sample.ns) ** 2 for sample in samples)


def _error(model: Model, prior: Model, samples: Sequence[Sample]) -> float:
    """Returns the value to minimize.

    It is infinite for a memory line faster than all processes together could fill, because no
    sample would show that.
    """
    processes = 2 * max(sample.pairs for sample in samples)
    if model.inside and model.line * processes < model.copy:
        return math.inf
    far = sum(math.log(getattr(model, name) / getattr(prior, name)) ** 2 for name in _FREE)
    return _misfit(model, samples) + _HELD * far


def _descend(model: Model, prior: Model, samples: Sequence[Sample]) -> Model:
    """Descends from `model` by ever smaller factors while the error falls."""
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
    """Yields models with one constant changed, or two, because valleys of the error may be
    diagonal."""
    for one in _FREE:
        for step in (factor, 1 / factor):
            moved = replace(model, **{one: getattr(model, one) * step})
            yield moved
            for other in _FREE:
                if other != one:
                    yield replace(moved, **{other: getattr(moved, other) / factor})
