"""Caches the parameters and buffers of a module while nothing is added to it or removed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_Held = tuple[dict[str, Any], str, Any]  # table, name, value


class ModuleIndex:
    """Lists the contents of a module. A traversal of all layers may take longer than a small step.

    Attributes:
        modules, parameters, buffers: by name, as of the last look().
        has_extra_state: a submodule implements get_extra_state().
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._held: list[_Held] = []
        self._tables: list[dict[str, Any]] = []
        self._count = -1  # number of entries in the tables
        self.modules: list[tuple[str, nn.Module]] = []
        self.parameters: list[tuple[str, nn.Parameter]] = []
        self.buffers: list[tuple[str, torch.Tensor]] = []
        self.has_extra_state = False
        self.look()

    def look(self) -> None:
        """Refreshes the lists if anything was added, removed or replaced."""
        if self._is_unchanged():
            return
        self.modules = list(self._module.named_modules())
        modules = [one for _, one in self.modules]
        self._tables = [
            table for one in modules for table in (one._modules, one._parameters, one._buffers)
        ]
        self._held = [(table, name, what) for table in self._tables for name, what in table.items()]
        self._count = len(self._held)
        self.parameters = list(self._module.named_parameters())
        self.buffers = list(self._module.named_buffers())
        plain = nn.Module.get_extra_state
        self.has_extra_state = any(type(one).get_extra_state is not plain for one in modules)

    def _is_unchanged(self) -> bool:
        if sum(map(len, self._tables)) != self._count:
            return False
        return all(name in where and where[name] is what for where, name, what in self._held)
