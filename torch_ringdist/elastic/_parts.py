"""What a State is made of: an entry for each thing that training changes."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from torch_ringdist._errors import ArgumentError, NotSupportedError
from torch_ringdist.elastic._numpy_random import NumpyRandom
from torch_ringdist.elastic._walk import Walk

Tree = Any  # nested dicts, lists and tuples of tensors and values


class Part:
    """One entry. A tree that it gives shares memory with what it is of. look() comes first.

    Attributes:
        shared: the same on all ranks of one step, which is checked.
        given: newcomers, and ranks that are a step behind, get it from another rank.
        fresh: what it gives is a copy, of which nobody wants a part.
    """

    shared = True
    given = True
    fresh = False

    def look(self) -> None:
        """It may be made of other things than before."""

    def read(self) -> Tree:
        raise NotImplementedError

    def write(self, tree: Tree) -> None:
        """Puts back what read() gave, on this rank or on another one."""
        raise NotImplementedError

    def describe(self) -> str:
        """What must be equal on all ranks for write() to work: shapes, classes."""
        return ""


class GuardedPart(Part):
    """One whose tensors training changes in optimizer.step() only: State(copy=False) keeps no
    copies of them."""

    def tensors(self) -> list[torch.Tensor]:
        """Themselves."""
        raise NotImplementedError

    def values(self) -> Any:
        """A copy of the rest."""
        raise NotImplementedError

    def write_values(self, values: Any) -> None:
        raise NotImplementedError

    def read_with(self, values: Any) -> Tree:
        """As read(), but for these."""
        raise NotImplementedError

    def name_of(self, tensor: torch.Tensor) -> str:
        """For people."""
        leaves = pytree.tree_flatten_with_path(self.read())[0]
        memory = tensor.data_ptr()
        names = [
            pytree.keystr(path)
            for path, leaf in leaves
            if isinstance(leaf, torch.Tensor) and leaf.data_ptr() == memory
        ]
        return names[0] if names else "a tensor"


class Parameters(GuardedPart):
    """Of a module."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def look(self) -> None:
        self._walk.look()  # also for the buffers

    def read(self) -> Tree:
        return {name: one.detach() for name, one in self._walk.parameters}

    def write(self, tree: Tree) -> None:
        for name, parameter in self._walk.parameters:
            _put(parameter, tree[name])

    def describe(self) -> str:
        return _shapes(self._walk.parameters)

    def tensors(self) -> list[torch.Tensor]:
        return [one for _, one in self._walk.parameters]

    def values(self) -> None:
        pass

    def write_values(self, values: None) -> None:
        pass

    def read_with(self, values: None) -> Tree:
        return self.read()

    def clear_gradients(self) -> None:
        for _, parameter in self._walk.parameters:
            parameter.grad = None


class Buffers(Part):
    """Of a module. DDP gives all ranks those of rank 0 before a forward pass, which then changes
    them on each: so they may differ, and change before any collective of a step."""

    shared = False  # and of no set shape: some grow

    def __init__(self, module: nn.Module, walk: Walk) -> None:
        self._module, self._walk = module, walk

    @property
    def fresh(self) -> bool:  # there are none
        return not (self._walk.buffers or self._walk.has_extra_state)

    def read(self) -> Tree:
        tensors = {name: one.detach() for name, one in self._walk.buffers}
        if not self._walk.has_extra_state:
            return tensors, {}
        extra = self._module.state_dict(keep_vars=True)
        return tensors, {name: extra[name] for name in extra if name.endswith("_extra_state")}

    def write(self, tree: Tree) -> None:
        tensors, extra = tree
        now = dict(self._walk.buffers)
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


class Optimizer(GuardedPart):
    """Its values are those of the groups, and of each parameter's state what is no tensor."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def read(self) -> Tree:
        return self._optimizer.state_dict()

    def write(self, tree: Tree) -> None:
        self._optimizer.load_state_dict(copy.deepcopy(tree))  # it would keep the tensors

    def describe(self) -> str:
        groups = [len(group["params"]) for group in self._optimizer.param_groups]
        return f"{type(self._optimizer).__name__} of {groups} parameters"

    def tensors(self) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for state in self._optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    found.append(value)
                elif type(value) not in _SIMPLE:
                    leaves = pytree.tree_leaves(value)
                    found += [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return found

    def values(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        groups = [
            {name: _copied(group[name]) for name in group if name != "params"}
            for group in self._optimizer.param_groups
        ]
        return groups, [
            {
                name: _copied_values(value)
                for name, value in state.items()
                if not isinstance(value, torch.Tensor)
            }
            for state in self._optimizer.state.values()
        ]

    def write_values(self, values: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
        groups, states = values
        for group, saved in zip(self._optimizer.param_groups, groups, strict=True):
            group.update({name: _copied(saved[name]) for name in saved})
        for state, saved in zip(self._optimizer.state.values(), states, strict=True):
            state.update({name: _copied_values(saved[name]) for name in saved})

    def read_with(self, values: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> Tree:
        groups, states = values
        tree = self.read()
        for group, saved in zip(tree["param_groups"], groups, strict=True):
            group.update(saved)
        # In the order of the optimizer's own.
        pairs = zip(tree["state"].items(), states, strict=True)
        return {**tree, "state": {at: {**state, **saved} for (at, state), saved in pairs}}


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
    fresh = True

    def __init__(self) -> None:
        self._numpy = NumpyRandom()

    def read(self) -> Tree:
        return {
            "torch": torch.get_rng_state(),
            "devices": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "python": random.getstate(),
            "numpy": self._numpy.read(),
        }

    def write(self, tree: Tree) -> None:
        torch.set_rng_state(tree["torch"])
        if tree["devices"]:
            torch.cuda.set_rng_state_all(tree["devices"])
        random.setstate(tree["python"])
        self._numpy.write(tree["numpy"])


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
        walk = Walk(value)
        return {name: Parameters(walk), f"{name} (buffers)": Buffers(value, walk)}
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
    with torch.no_grad():
        target.copy_(source)


_SIMPLE = frozenset({int, float, bool, str, type(None)})


def _copied(value: Any) -> Any:
    return value if type(value) in _SIMPLE else copy.deepcopy(value)


def _copied_values(tree: Tree) -> Tree:
    """With its tensors themselves."""
    if type(tree) in _SIMPLE:
        return tree
    return pytree.tree_map(lambda x: x if isinstance(x, torch.Tensor) else copy.deepcopy(x), tree)


def _shapes(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    return "\n".join(f"{name}: {list(one.shape)} of {one.dtype}" for name, one in tensors)
