"""Chooses the codec of each parameter by rules on its name, or else by the module that owns it."""

from __future__ import annotations

import fnmatch
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torch_ringdist import _native

# LayerNorm, BatchNorm2d, LlamaRMSNorm, ...
_NORM = re.compile(r"norm(\dd)?$", re.IGNORECASE)
# A module under torch.compile() has this in the names of its parameters.
_COMPILED = "_orig_mod."


class Rule(NamedTuple):
    """A parameter and the codec that was chosen for it."""

    name: str
    parameter: torch.Tensor
    codec: str  # this codec always; if empty, the codec of the hook
    coarsest: str  # replaces a codec of fewer bits; if empty, no bound


def resolve(model: nn.Module, rules: Mapping[str, str] | None, smallest: int) -> list[Rule]:
    """Returns one Rule for each parameter of `model`, in its order; the first matching pattern
    wins.

    Without a match, parameters of fewer than `smallest` elements and those of norms stay
    uncompressed. Embeddings use at least int8, because a row without a gradient would get the scale
    of its neighbors. All others take the codec of the hook.

    Warns about a pattern that matches no parameter.
    """
    if isinstance(model, DistributedDataParallel):
        model = model.module
    return resolve_named(model.named_parameters(), owners_in(model), rules, smallest)


def resolve_named(
    parameters: Iterable[tuple[str, torch.Tensor]],
    owners: Mapping[torch.Tensor, nn.Module],
    rules: Mapping[str, str] | None,
    smallest: int,
) -> list[Rule]:
    """Returns rules like resolve() for parameters that may belong to unknown modules.

    One-dimensional parameters of unknown modules stay uncompressed, because the parameters of norms
    have one dimension.
    """
    patterns = dict(rules or {})
    unused = set(patterns)
    out = []
    for name, parameter in parameters:
        name = name.replace(_COMPILED, "")
        matches = [pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)]
        unused.difference_update(matches)
        if matches:
            out.append(Rule(name, parameter, patterns[matches[0]], ""))
        elif parameter.numel() < smallest or _is_norm(owners.get(parameter), parameter):
            out.append(Rule(name, parameter, _native.load().NO_CODEC, ""))
        else:
            embedding = isinstance(owners.get(parameter), nn.Embedding | nn.EmbeddingBag)
            out.append(Rule(name, parameter, "", "int8" if embedding else ""))
    for pattern in sorted(unused):
        warnings.warn(
            f"ringdist: rules: {pattern!r} matches no parameter", stacklevel=_level_of_caller()
        )
    return out


def _level_of_caller() -> int:
    """Returns the stacklevel for a warning: the first frame outside of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("torch_ringdist"):
        level, frame = level + 1, frame.f_back
    return level


# Maps each parameter to the module that owns it.
def owners_in(model: nn.Module) -> dict[torch.Tensor, nn.Module]:
    def pairs() -> Iterator[tuple[torch.Tensor, nn.Module]]:
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                yield parameter, module

    # If several modules share a parameter, an embedding wins, because it is tied to the output
    # layer.
    out: dict[torch.Tensor, nn.Module] = {}
    for parameter, module in pairs():
        if parameter not in out or isinstance(module, nn.Embedding):
            out[parameter] = module
    return out


# Returns True for a parameter of a norm; for an unknown owner, if it has one dimension.
def _is_norm(owner: nn.Module | None, parameter: torch.Tensor) -> bool:
    if owner is None:
        return parameter.dim() < 2
    return _NORM.search(type(owner).__name__) is not None
