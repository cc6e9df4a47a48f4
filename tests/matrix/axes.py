"""Settings to vary: one row per setting, and the values that are combined.

A new axis is a row of AXES. It sets an environment variable, which the ranks inherit: a setting of
ringdist, or a setting of the tests (tests/python/support), with TEST_ in its name.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Configuration = dict[str, str]  # by axis; "" where the setting is not forced


@dataclass(frozen=True)
class Axis:
    name: str
    variable: str
    values: Callable[[], list[str]]
    idle_beside: tuple[str, ...] = ()  # axes that make this setting have no effect


def _algorithms() -> list[str]:
    import torch_ringdist

    return ["", *(row[0] for row in torch_ringdist.info()["algorithms"])]


def _transports() -> list[str]:
    """Returns the transports that work between processes. The first is the default within a
    host."""
    import torch_ringdist

    names = [name for name, _, state in torch_ringdist.info()["transports"] if state == "ok"]
    return ["", *names[1:]]


AXES: tuple[Axis, ...] = (
    Axis("algorithm", "RINGDIST_ALGORITHM", _algorithms),
    Axis("transport", "RINGDIST_TRANSPORT", _transports),
    Axis("segment_bytes", "RINGDIST_SEGMENT_BYTES", lambda: ["", "4096"]),
    Axis(
        "shared_tensors",
        "SHARE_TEST_TENSORS",
        lambda: ["", "1"],
        idle_beside=("transport", "segment_bytes"),
    ),
)


def environment_of(configuration: Configuration) -> dict[str, str]:
    """Returns the environment variables of a configuration."""
    variables = {axis.name: axis.variable for axis in AXES}
    return {variables[name]: value for name, value in configuration.items() if value}


def command_environment(configuration: Configuration) -> dict[str, str]:
    """Returns this process's environment with the configuration's settings and no others."""
    others = {axis.variable for axis in AXES}
    kept = {name: value for name, value in os.environ.items() if name not in others}
    return {**kept, **environment_of(configuration)}


def text_of(configuration: Configuration) -> str:
    return ", ".join(f"{name} {value or 'default'}" for name, value in configuration.items())


def untouched() -> Configuration:
    """Returns the configuration of `make test`, with no setting forced."""
    return {axis.name: "" for axis in AXES}


def every(values: dict[str, list[str]]) -> list[Configuration]:
    """Returns all combinations."""
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def pairwise(
    values: dict[str, list[str]], known: Sequence[Configuration] = ()
) -> list[Configuration]:
    """Returns few configurations in which any two values of two axes meet, unless they meet in
    `known`. Each next configuration covers most pairs that are missing; among equals, the one
    that forces most."""
    left = every(values)
    missing = set().union(*(pairs_of(one) for one in left)) if left else set()
    missing -= set().union(*(pairs_of(one) for one in known))
    chosen: list[Configuration] = []

    def worth(one: Configuration) -> tuple[int, int]:
        return len(pairs_of(one) & missing), sum(map(bool, one.values()))

    while missing:
        best = max(left, key=worth)
        missing -= pairs_of(best)
        left.remove(best)
        chosen.append(best)
    return chosen


def pairs_of(configuration: Configuration) -> set[tuple[tuple[str, str], ...]]:
    """Returns the pairs of two settings, or the single setting if there is one axis. A setting
    without effect pairs only with the settings that cause this."""
    settings: Sequence[tuple[str, str]] = sorted(configuration.items())
    pairs = set(itertools.combinations(settings, min(2, len(settings))))
    for axis in AXES:
        forced = (axis.name, configuration.get(axis.name, ""))
        if forced[1] and any(configuration.get(name) for name in axis.idle_beside):
            causes = {(name, configuration[name]) for name in axis.idle_beside}
            pairs -= {pair for pair in pairs if forced in pair and not causes & {*pair}}
    return pairs
