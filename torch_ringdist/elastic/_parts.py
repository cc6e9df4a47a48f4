"""What a State is made of: an entry for each thing that training changes."""

from __future__ import annotations

import copy
import operator
import pickle
import random
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from torch_ringdist._errors import ArgumentError, NotSupportedError

Tree = Any  # nested dicts, lists and tuples of tensors and values


class Part:
    """One entry. A tree that it gives shares memory with what it is of.

    Attributes:
        shared: the same on all ranks of one step, which is checked.
        given: newcomers, and ranks that are a step behind, get it from another rank.
        guarded: tensors that training changes in optimizer.step() only: State(copy=False) keeps no
            copies of them.
    """

    shared = True
    given = True
    guarded = False

    def read(self) -> Tree:
        raise NotImplementedError

    def write(self, tree: Tree) -> None:
        """Puts back what read() gave, on this rank or on another one."""
        raise NotImplementedError

    def describe(self) -> str:
        """What must be equal on all ranks for write() to work: shapes, classes."""
        return ""


class Parameters(Part):
    """Of a module."""

    guarded = True

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def read(self) -> Tree:
        return {name: one.detach() for name, one in self._module.named_parameters()}

    def write(self, tree: Tree) -> None:
        for name, parameter in self._module.named_parameters():
            _put(parameter, tree[name])

    def describe(self) -> str:
        return _shapes(self._module.named_parameters())


class Buffers(Part):
    """Of a module. DDP gives all ranks those of rank 0 before a forward pass, which then changes
    them on each: so they may differ, and change before any collective of a step."""

    shared = False  # and of no set shape: some grow

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def read(self) -> Tree:
        tensors = {name: one.detach() for name, one in self._module.named_buffers()}
        extra = self._module.state_dict(keep_vars=True)
        return tensors, {name: extra[name] for name in extra if name.endswith("_extra_state")}

    def write(self, tree: Tree) -> None:
        tensors, extra = tree
        now = dict(self._module.named_buffers())
        for name in now.keys() | tensors.keys():
            if name in now and name in tensors and now[name].shape == tensors[name].shape:
                _put(now[name], tensors[name])
                continue
            # It has come, gone or grown in a forward pass.
            owner, _, last = name.rpartition(".")
            buffer = tensors[name].clone() if name in tensors else None
            setattr(self._module.get_submodule(owner), last, buffer)
        if extra:
            self._module.load_state_dict(extra, strict=False)


class Optimizer(Part):
    guarded = True

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def read(self) -> Tree:
        return self._optimizer.state_dict()

    def write(self, tree: Tree) -> None:
        if not self._has(tree):
            self._optimizer.load_state_dict(copy.deepcopy(tree))  # it would keep the tensors
            return
        for group, saved in zip(self._optimizer.param_groups, tree["param_groups"], strict=True):
            group.update({name: copy.deepcopy(saved[name]) for name in saved if name != "params"})

    def _has(self, tree: Tree) -> bool:
        """The tensors of the tree are its own, as where no copies are kept."""
        ours, theirs = (pytree.tree_leaves(one["state"]) for one in (self.read(), tree))
        return len(ours) == len(theirs) and all(map(operator.is_, ours, theirs))

    def describe(self) -> str:
        groups = [len(group["params"]) for group in self._optimizer.param_groups]
        return f"{type(self._optimizer).__name__} of {groups} parameters"


class Stateful(Part):
    """Anything with state_dict() and load_state_dict(): a learning rate scheduler, a GradScaler."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def read(self) -> Tree:
        return self._value.state_dict()

    def write(self, tree: Tree) -> None:
        self._value.load_state_dict(copy.deepcopy(tree))

    def describe(self) -> str:
        return type(self._value).__name__


class Value(Part):
    """A number, a text, a tensor, or a container of such, which the State itself holds."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        self._values, self._name = values, name

    def read(self) -> Tree:
        return self._values[self._name]

    def write(self, tree: Tree) -> None:
        self._values[self._name] = copy.deepcopy(tree)


class RandomNumbers(Part):
    """The generators of torch, of Python, and of numpy if it is there. Each rank has its own."""

    shared = given = False

    def read(self) -> Tree:
        numpy = sys.modules.get("numpy")
        return {
            "torch": torch.get_rng_state(),
            "devices": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            # As one value each: they are tuples of hundreds of numbers.
            "python": pickle.dumps(random.getstate()),
            "numpy": pickle.dumps(numpy.random.get_state()) if numpy else b"",
        }

    def write(self, tree: Tree) -> None:
        torch.set_rng_state(tree["torch"])
        if tree["devices"]:
            torch.cuda.set_rng_state_all(tree["devices"])
        random.setstate(pickle.loads(tree["python"]))
        if tree["numpy"]:
            sys.modules["numpy"].random.set_state(pickle.loads(tree["numpy"]))


def parts_of(name: str, values: dict[str, Any]) -> dict[str, Part]:
    """Of the entry that State was given by that name.

    Raises:
        ArgumentError, NotSupportedError: what cannot be an entry.
    """
    value = values[name]
    if isinstance(value, DistributedDataParallel):
        raise ArgumentError(
            f"ringdist: State: {name} is a DistributedDataParallel, which ends with a generation; "
            f"give the module itself ({name}.module), and make a new one of state.{name} in each"
        )
    if isinstance(value, nn.Module):
        _check_whole(name, value)
        return {f"{name}": Parameters(value), f"{name} (buffers)": Buffers(value)}
    if isinstance(value, torch.optim.Optimizer):
        return {name: Optimizer(value)}
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return {name: Stateful(value)}
    check_value(name, value)
    return {name: Value(values, name)}


def _check_whole(name: str, module: nn.Module) -> None:
    # Who has not imported these modules, which takes a second, has nothing of them.
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
    """Raises ArgumentError unless it is one that State can hold and put back."""
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


def _put(target: torch.Tensor, source: torch.Tensor) -> None:
    """Nothing where it is the same memory: a copy would count as a change."""
    if target.data_ptr() != source.data_ptr():
        with torch.no_grad():
            target.copy_(source)


def _shapes(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    return "\n".join(f"{name}: {list(one.shape)} of {one.dtype}" for name, one in tensors)
