"""Creates the parts of a State from its entries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from torch_ringdist._errors import ArgumentError, NotSupportedError
from torch_ringdist.elastic._module_index import ModuleIndex
from torch_ringdist.elastic._optimizer import Optimizer
from torch_ringdist.elastic._parts import Buffers, Parameters, Part, Stateful, Value

# Types of values without members.
_PLAIN = (int, float, complex, str, bytes, type(None), torch.Tensor, torch.dtype, torch.device)


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


def check_optimizers(values: dict[str, Any], parts: dict[str, Part]) -> None:
    """Raises ArgumentError if an optimizer has a parameter that no part of the State restores."""
    modules = [part.tensors() for part in parts.values() if isinstance(part, Parameters)]
    own = {id(one) for tensors in modules for one in tensors}
    others = [
        (f"parameter {index} of group {at} of {name}", parameter)
        for name, optimizer in values.items()
        if isinstance(optimizer, torch.optim.Optimizer)
        for at, group in enumerate(optimizer.param_groups)
        for index, parameter in enumerate(group["params"])
        if id(parameter) not in own and parameter.numel() and parameter.requires_grad
    ]
    if not others:
        return
    # An object with state_dict() may have parameters, too. A Value is replaced, not restored.
    leaves = pytree.tree_leaves(
        [part.read() for part in parts.values() if not isinstance(part, Value)]
    )
    tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
    kept = {_memory_of(one) for one in tensors}
    for place, parameter in others:
        if _memory_of(parameter) not in kept:
            raise ArgumentError(
                f"ringdist: State: {place} is in no module of this State, so it would not be kept: "
                "add its module"
            )


# Returns the address of the memory that a tensor shares with its views; 0 if it is not strided.
def _memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def check_value(name: str, value: Any) -> None:
    """Raises ArgumentError unless State can hold and restore the value."""
    leaves = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, (Mapping, list, tuple, set)):
        for leaf in leaves:
            check_value(name, leaf)
    elif isinstance(value, torch.Tensor) and value.requires_grad:
        raise ArgumentError(
            f"ringdist: State: {name} is a tensor that requires gradients, which an optimizer may "
            "hold: make it a parameter of a module"
        )
    elif not isinstance(value, _PLAIN):
        raise ArgumentError(
            f"ringdist: State: {name} must be a module, an optimizer, something with state_dict() "
            "and load_state_dict(), or numbers, texts and tensors in dicts, lists, tuples and "
            f"sets, got {type(value).__name__}"
        )
