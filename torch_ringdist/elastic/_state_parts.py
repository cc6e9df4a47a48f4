"""Creates the parts of a State from its entries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torch_ringdist._errors import ArgumentError, NotSupportedError
from torch_ringdist.elastic._module_index import ModuleIndex
from torch_ringdist.elastic._optimizer import Optimizer
from torch_ringdist.elastic._parts import Buffers, Parameters, Part, Stateful, Value


def parts_of(name: str, values: dict[str, Any]) -> dict[str, Part]:
    """Returns the parts of the entry `name` by part name.

    Raises:
        ArgumentError, NotSupportedError: the value cannot be an entry.
    """
    value = values[name]
    if isinstance(value, Part):
        return {name: value}
    if isinstance(value, DistributedDataParallel):
        raise ArgumentError(
            f"ringdist: State: {name} is a DistributedDataParallel, which ends with a generation; "
            f"give the module itself ({name}.module), and make a new one of state.{name} in each"
        )
    if isinstance(value, nn.Module):
        _check_whole(name, value)
        walk = ModuleIndex(value)
        return {name: Parameters(walk), f"{name} (buffers)": Buffers(value, walk)}
    if isinstance(value, torch.optim.Optimizer):
        return {name: Optimizer(value)}
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return {name: Stateful(value)}
    check_value(name, value)
    return {name: Value(values, name)}


# Raises NotSupportedError for a sharded module.
def _check_whole(name: str, module: nn.Module) -> None:
    # If these modules, which take a second to import, are not imported, no module uses them.
    fsdp, dtensor = (
        getattr(sys.modules.get(f"torch.distributed.{where}"), name, ())
        for where, name in (("fsdp", "FullyShardedDataParallel"), ("tensor", "DTensor"))
    )
    sharded = [one for one in module.modules() if isinstance(one, fsdp)]
    sharded += [one for one in module.parameters() if isinstance(one, dtensor)]
    if sharded:
        raise NotSupportedError(
            f"ringdist: State: {name} is sharded ({type(sharded[0]).__name__}): what a rank that "
            "dies has of it, no other one has. FSDP and DTensor are not served yet"
        )


def check_value(name: str, value: Any) -> None:
    """Raises ArgumentError unless State can hold and restore the value."""
    leaves = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, (Mapping, list, tuple)):
        for leaf in leaves:
            check_value(name, leaf)
    elif isinstance(value, torch.Tensor) and value.requires_grad:
        raise ArgumentError(
            f"ringdist: State: {name} is a tensor that requires gradients, which an optimizer may "
            "hold: make it a parameter of a module"
        )
    elif not isinstance(value, (int, float, str, bool, bytes, torch.Tensor, type(None))):
        raise ArgumentError(
            f"ringdist: State: {name} must be a module, an optimizer, something with state_dict() "
            "and load_state_dict(), or numbers, texts and tensors in dicts, lists and tuples, got "
            f"{type(value).__name__}"
        )
