"""Part of a State for an optimizer."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_ringdist.elastic._parts import GuardedPart, Tree

_SIMPLE = frozenset({int, float, bool, str, type(None)})
_PARAMETERS = "params"  # key in a parameter group


@dataclass(frozen=True)
class OptimizerValues:
    """Copies of an optimizer's values without its tensors.

    Attributes:
        groups: the options of each parameter group.
        states: a dict without tensors, or another value of the optimizer, per key (usually a
            parameter).
    """

    groups: list[dict[str, Any]]
    states: dict[Any, Any]


# Part for a torch.optim.Optimizer. Its functions are documented in GuardedPart.
class Optimizer(GuardedPart):
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def read(self) -> Tree:
        return self._optimizer.state_dict()

    def write(self, tree: Tree) -> None:
        tree = copy.deepcopy(tree)  # or it would keep the tensors
        self._optimizer.load_state_dict(tree)
        if type(self._optimizer).load_state_dict is torch.optim.Optimizer.load_state_dict:
            self._restore_dtypes(tree)

    def _restore_dtypes(self, tree: Tree) -> None:
        """Puts back tensors of the state that torch has converted to the dtype of a parameter."""
        groups = zip(self._optimizer.param_groups, tree["param_groups"], strict=True)
        for group, saved_group in groups:
            pairs = zip(group[_PARAMETERS], saved_group[_PARAMETERS], strict=True)
            for parameter, index in pairs:
                state, saved_state = self._optimizer.state.get(parameter), tree["state"].get(index)
                if not isinstance(state, dict) or not isinstance(saved_state, dict):
                    continue
                for name, saved in _tensors_of(saved_state).items():
                    loaded = state.get(name)
                    if isinstance(loaded, torch.Tensor) and loaded.dtype != saved.dtype:
                        state[name] = saved.to(loaded.device)

    def describe(self) -> str:
        groups = [len(group[_PARAMETERS]) for group in self._optimizer.param_groups]
        return f"{type(self._optimizer).__name__} of {groups} parameters"

    @property
    def can_be_guarded(self) -> bool:
        """True if the optimizer keeps its state where torch's own optimizers do."""
        one = self._optimizer
        hooks = (one._optimizer_state_dict_pre_hooks, one._optimizer_state_dict_post_hooks)
        return type(one).state_dict is torch.optim.Optimizer.state_dict and not any(hooks)

    def tensors(self) -> list[torch.Tensor]:
        found = [
            value
            for group in self._optimizer.param_groups
            for value in group.values()
            if isinstance(value, torch.Tensor)
        ]
        for state in self._optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else (state,):
                if isinstance(value, torch.Tensor):
                    found.append(value)
                elif type(value) not in _SIMPLE:
                    leaves = pytree.tree_leaves(value)
                    found += [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        return found

    def values(self) -> OptimizerValues:
        return OptimizerValues(
            [
                {name: _copied(group[name]) for name in group if name != _PARAMETERS}
                for group in self._optimizer.param_groups
            ],
            {
                of: {
                    name: _copied(value)
                    for name, value in state.items()
                    if not isinstance(value, torch.Tensor)
                }
                if isinstance(state, dict)
                else _copied(state)
                for of, state in self._optimizer.state.items()
            },
        )

    def is_like(self, values: OptimizerValues) -> bool:
        return len(values.groups) == len(self._optimizer.param_groups)

    def write_values(self, values: OptimizerValues) -> None:
        for group, saved in zip(self._optimizer.param_groups, values.groups, strict=True):
            _make_like(group, {_PARAMETERS: group[_PARAMETERS], **saved})
        states = self._optimizer.state
        for of in [one for one in states if one not in values.states]:
            del states[of]
        for of, saved in values.states.items():
            if isinstance(saved, dict):
                _make_like(states[of], {**_tensors_of(states[of]), **saved})
            else:
                states[of] = _copied(saved)

    def read_with(self, values: OptimizerValues) -> Tree:
        tree = self.read()
        pairs = zip(tree["param_groups"], values.groups, strict=True)
        groups = [{**saved, _PARAMETERS: group[_PARAMETERS]} for group, saved in pairs]
        # State dict and optimizer have their states in the same order.
        owners = zip(tree["state"].items(), self._optimizer.state, strict=True)
        states = {
            at: {**_tensors_of(state), **saved} if isinstance(saved, dict) else saved
            for (at, state), of in owners
            if (saved := values.states.get(of)) is not None
        }
        return {**tree, "state": states, "param_groups": groups}


def _tensors_of(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


# Makes `target` equal to `wanted`, in place.
def _make_like(target: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in [one for one in target if one not in wanted]:
        del target[name]
    target.update({name: _copied(value) for name, value in wanted.items()})


def _copied(value: Any) -> Any:
    """Returns a copy of a value that contains the same tensor objects."""
    if type(value) in _SIMPLE or isinstance(value, torch.Tensor):
        return value
    return pytree.tree_map(
        lambda one: one if isinstance(one, torch.Tensor) else copy.deepcopy(one), value
    )
