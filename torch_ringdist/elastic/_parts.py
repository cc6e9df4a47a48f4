"""Parts of a State: one class for each kind of thing that training changes."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from torch_ringdist._tensor_meta import TensorMeta
from torch_ringdist.elastic._module_index import ModuleIndex
from torch_ringdist.elastic._numpy_random import NumpyRandom

Tree = Any  # nested dicts, lists and tuples of tensors and values


class Part:
    """One part of a State. The trees that it returns share memory with their source.

    Attributes:
        shared: the part is equal on all ranks after the same step, which is checked.
        given: newcomers, and ranks that are a step behind, receive it from another rank.
        fresh: read() returns a copy that nothing else uses.
    """

    shared = True
    given = True

    @property
    def fresh(self) -> bool:
        return False

    # Returns the contents as a tree.
    def read(self) -> Tree:
        raise NotImplementedError

    def write(self, tree: Tree) -> None:
        """Restores contents that read() returned, on this rank or on another one."""
        raise NotImplementedError

    def describe(self) -> str:
        """Returns text that must be equal on all ranks for write() to work: shapes and classes."""
        return ""

    def check(self, name: str, tree: Tree) -> None:
        """Checks a tree of another rank, with a TensorMeta in place of each tensor.

        Raises:
            ValueError: it is not of the form that read() returns; the message begins with `name`.
        """


class GuardedPart(Part):
    """A part with tensors that only optimizer.step() changes. State(copy=False) keeps no copies of
    them."""

    def tensors(self) -> list[torch.Tensor]:
        """Returns the tensors themselves."""
        raise NotImplementedError

    def values(self) -> Any:
        """Returns a copy of all values that are not tensors; None if there are none."""

    def is_like(self, values: Any) -> bool:
        """Returns True if write_values() can restore these values."""
        return True

    # Restores values of values().
    def write_values(self, values: Any) -> None:
        pass

    def read_with(self, values: Any) -> Tree:
        """Returns read() with these values in place of the present ones."""
        return self.read()

    # True if tensors() finds all tensors of the part.
    @property
    def can_be_guarded(self) -> bool:
        return True

    def name_of(self, tensor: torch.Tensor) -> str:
        """Returns a name of the tensor for messages."""
        leaves = pytree.tree_flatten_with_path(self.read())[0]
        memory = tensor.data_ptr()
        names = [
            pytree.keystr(path)
            for path, leaf in leaves
            if isinstance(leaf, torch.Tensor) and leaf.data_ptr() == memory
        ]
        return names[0] if names else "a tensor"


class Parameters(GuardedPart):
    """Part for the parameters of a module."""

    def __init__(self, walk: ModuleIndex) -> None:
        self._module_index = walk

    def look(self) -> None:
        """Refreshes the list of parameters, and that of the module's Buffers. Call it before other
        functions."""
        self._module_index.look()

    def read(self) -> Tree:
        return {name: one.detach() for name, one in self._module_index.parameters}

    def write(self, tree: Tree) -> None:
        for name, parameter in self._module_index.parameters:
            _put(parameter, tree[name])

    def describe(self) -> str:
        return _shapes(self._module_index.parameters)

    def check(self, name: str, tree: Tree) -> None:
        own = {path: TensorMeta.of(one) for path, one in self._module_index.parameters}
        if not _are_metas(tree) or tree.keys() != own.keys():
            raise ValueError(f"{name} has other parameters")
        for path, one in own.items():
            if (tree[path].shape, tree[path].dtype) != (one.shape, one.dtype):
                raise ValueError(f"{name} has another shape or dtype of {path!r}")

    def tensors(self) -> list[torch.Tensor]:
        return [one for _, one in self._module_index.parameters]

    # Sets all gradients to None.
    def clear_gradients(self) -> None:
        for _, parameter in self._module_index.parameters:
            parameter.grad = None


class Buffers(Part):
    """Part for the buffers of a module, its extra state, and its modes: eval and requires_grad.

    DDP copies rank 0's buffers to all ranks before a forward pass, which then changes them on each.
    So they may differ, and change before any collective of a step.
    """

    shared = False  # their shapes may change too

    def __init__(self, module: nn.Module, walk: ModuleIndex) -> None:
        self._module, self._module_index = module, walk

    @property
    def fresh(self) -> bool:  # True without buffers
        return not (self._module_index.buffers or self._module_index.has_extra_state)

    def read(self) -> Tree:
        tensors = {name: one.detach() for name, one in self._module_index.buffers}
        if not self._module_index.has_extra_state:
            return tensors, {}, self._modes()
        extra = self._module.state_dict(keep_vars=True)
        extra = {name: extra[name] for name in extra if name.endswith("_extra_state")}
        return tensors, extra, self._modes()

    def _modes(self) -> tuple[str, str]:
        """Returns the modules in eval mode, and the parameters without requires_grad: a line for
        each name. A commit copies a text faster than a list."""
        modules, parameters = self._module_index.modules, self._module_index.parameters
        evaluated = (f"{name}\n" for name, one in modules if not getattr(one, "training", True))
        frozen = (f"{name}\n" for name, one in parameters if not one.requires_grad)
        return "".join(evaluated), "".join(frozen)

    def _set_modes(self, *modes: str) -> None:
        evaluated, frozen = (frozenset(names.split("\n")[:-1]) for names in modes)
        for name, module in self._module_index.modules:
            if getattr(module, "training", True) == (name in evaluated):
                module.training = name not in evaluated
        for name, parameter in self._module_index.parameters:
            if parameter.requires_grad == (name in frozen):
                parameter.requires_grad = name not in frozen

    @staticmethod
    def without_modes(tree: Tree) -> Tree:
        """Returns a tree for checkpoints. After load() modules have the modes of the script."""
        return tree[:2]

    def write(self, tree: Tree) -> None:
        tensors, extra, *modes = tree
        if modes:
            self._set_modes(*modes[0])
        now = dict(self._module_index.buffers)
        for name in now.keys() | tensors.keys():
            if name in now and name in tensors and now[name].shape == tensors[name].shape:
                _put(now[name], tensors[name])
                continue
            # The buffer was added, removed or resized in a forward pass.
            owner, _, last = name.rpartition(".")
            buffer = tensors[name].clone() if name in tensors else None
            setattr(self._module.get_submodule(owner), last, buffer)
        if extra:
            self._module.load_state_dict(extra, strict=False)

    def check(self, name: str, tree: Tree) -> None:
        if type(tree) is not tuple or len(tree) not in (2, 3) or not _are_metas(tree[0]):
            raise ValueError(f"{name} has no tensors by name")
        tensors, extra, *modes = tree
        if modes and (type(modes[0]) is not tuple or [*map(type, modes[0])] != [str, str]):
            raise ValueError(f"{name} has other modes")
        for path in tensors.keys() - dict(self._module_index.buffers).keys():
            owner, _, last = path.rpartition(".")
            try:
                module = self._module.get_submodule(owner)
            except AttributeError as error:
                raise ValueError(f"{name} has a buffer of another module") from error
            if hasattr(module, last) and last not in module._buffers:  # write() would replace it
                raise ValueError(f"{name} has a buffer {path!r}, which is another attribute")
        good = type(extra) is dict and all(
            type(path) is str and path.endswith("_extra_state") for path in extra
        )
        if not good:
            raise ValueError(f"{name} has another extra state")


class Stateful(Part):
    """Part for an object with state_dict() and load_state_dict(), such as a scheduler or a
    GradScaler."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def read(self) -> Tree:
        return self._value.state_dict()

    def write(self, tree: Tree) -> None:
        load_state(self._value, copy.deepcopy(tree))

    def describe(self) -> str:
        return type(self._value).__name__


class Value(Part):
    """Part for a number, text, tensor, or container of these, which the State itself holds."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        self._values, self._name = values, name

    def read(self) -> Tree:
        return self._values[self._name]

    def write(self, tree: Tree) -> None:
        self._values[self._name] = copy.deepcopy(tree)


class RandomNumbers(Part):
    """Part for the random generators of torch, Python, and numpy if it is imported. Each rank has
    its own."""

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


def load_state(value: Any, state: Any) -> None:
    """Calls value.load_state_dict(), and resets which gradients a GradScaler has unscaled.

    load_state_dict() does not reset that, and gradients do not outlive a step.
    """
    value.load_state_dict(state)
    if isinstance(value, torch.amp.GradScaler) and value.is_enabled():
        value._per_optimizer_states.clear()


def _put(target: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(source)


def _are_metas(tree: Tree) -> bool:
    """Returns True if `tree` is a dict of TensorMetas by name."""
    pairs = tree.items() if type(tree) is dict else [(None, None)]
    return all(type(path) is str and type(one) is TensorMeta for path, one in pairs)


def _shapes(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    return "\n".join(f"{name}: {list(one.shape)} of {one.dtype}" for name, one in tensors)
