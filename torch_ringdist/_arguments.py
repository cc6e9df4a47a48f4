"""Checks the arguments of compress() and CompressState.

Each function raises the TypeError or ValueError that its caller documents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torch_ringdist import _native


# Returns the error text for `argument` with the accepted values and the given one.
def message(argument: str, accepted: str, given: Any) -> str:
    return (
        f"ringdist: compress: {argument} must be {accepted}, "
        f"got {given!r} of type {type(given).__name__}"
    )


# Checks that `value` is the nonempty text of a codec.
def check_text(argument: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(message(argument, "the text of a codec, as 'int4'", value))
    if not value:
        raise ValueError(message(argument, "the text of a codec, as 'int4' or 'none'", value))


# Checks that `value` is an int from 0 to 2**63 - 1; a bool is not accepted.
def check_count(argument: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(message(argument, "a whole number", value))
    if not 0 <= value < 1 << 63:
        raise ValueError(message(argument, "in 0 .. 2**63 - 1", value))


# Checks that `rules` maps name patterns to codecs that exist, and that a model is given with them.
# Both may be None.
def check_rules(rules: Any, model: Any) -> None:
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(message("model", "a torch.nn.Module or None", model))
    if rules is None:
        return
    if not isinstance(rules, Mapping):
        raise TypeError(message("rules", "a dict from name pattern to codec", rules))
    if model is None and rules:
        raise ValueError(
            "ringdist: compress: rules need the names of parameters: give model= as well"
        )
    for pattern, codec in rules.items():
        if not isinstance(pattern, str):
            raise TypeError(message("a pattern of rules", "text, as '*norm*'", pattern))
        check_text(f"rules[{pattern!r}]", codec)
        _native.load().check_codec(f"rules[{pattern!r}]", codec, 2, None)


# Checks that `schedule` is None, a function, or a mapping from step to codec. The codec names are
# checked later.
def check_schedule(schedule: Any) -> None:
    if schedule is None or callable(schedule):
        return
    if not isinstance(schedule, Mapping):
        raise TypeError(message("schedule", "a dict from step to codec, or a function", schedule))
    for step, codec in schedule.items():
        check_count("a step of schedule", step)
        check_text(f"schedule[{step}]", codec)


# Checks that `guard` is None or a finite number above 1.
def check_guard(guard: Any) -> None:
    if guard is None:
        return
    if not isinstance(guard, int | float) or isinstance(guard, bool):
        raise TypeError(message("guard", "a number above 1, or None", guard))
    if not (guard > 1 and math.isfinite(guard)):
        raise ValueError(message("guard", "a finite number above 1, or None", guard))


def check_state(state: Any) -> None:
    """Checks the argument of load_state_dict(), except whether the parameters are those of the
    model."""
    if not isinstance(state, Mapping):
        raise TypeError(message("state", "what state_dict() returned", state))
    if state.get("version") != 1:
        raise ValueError(message("state['version']", "1", state.get("version")))
    if missing := [key for key in _STATE_KEYS if key not in state]:
        raise ValueError(f"ringdist: compress: the state has no {missing[0]!r}")
    check_count("state['steps']", state["steps"])
    check_count("state['world_size']", state["world_size"])
    if state["world_size"] < 1:
        raise ValueError(message("state['world_size']", "1 or more", state["world_size"]))
    scale = state["scale"]
    if not isinstance(scale, int | float):
        raise TypeError(message("state['scale']", "a number", scale))
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(message("state['scale']", "a finite number above 0", scale))
    _check_residuals(state["residuals"])


_STATE_KEYS = ("steps", "scale", "world_size", "residuals")


# Checks that `residuals` maps names to tensors of finite floats.
def _check_residuals(residuals: Any) -> None:
    if residuals is None:
        raise ValueError(
            "ringdist: compress: this state has no residuals: it is that of another "
            "rank than 0. Give every rank what rank 0 saved"
        )
    if not isinstance(residuals, Mapping):
        raise TypeError(message("state['residuals']", "a dict of tensors by name", residuals))
    for name, total in residuals.items():
        argument = f"state['residuals'][{name!r}]"
        if not isinstance(total, torch.Tensor) or not total.is_floating_point():
            raise TypeError(message(argument, "a tensor of floats", total))
        if not total.float().isfinite().all():
            raise ValueError(
                f"ringdist: compress: {argument} has values that float32 does not hold: they "
                "would spoil every later gradient"
            )
