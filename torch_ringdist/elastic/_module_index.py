"""What a module is made of, found once for as long as nothing is put in or taken out of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_Held = tuple[dict[str, Any], str, Any]  # where, by which name, what


class ModuleIndex:
    """Through a module: to ask all its layers takes longer than a small step may.

    Attributes, as look() has found them last:
        parameters, buffers: by name.
        has_extra_state: a part of it has what get_extra_state() gives.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._held: list[_Held] = []
        self._tables: list[dict[str, Any]] = []
        self._count = -1  # of what they hold
        self.parameters: list[tuple[str, nn.Parameter]] = []
        self.buffers: list[tuple[str, torch.Tensor]] = []
        self.has_extra_state = False
        self.look()

    def look(self) -> None:
        """Whether anything was put in, taken out or replaced."""
        if self._is_unchanged():
            return
        modules = list(self._module.modules())
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
