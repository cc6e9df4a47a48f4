"""The CPU in place of a GPU, for tests that use "cuda" as the device of the rank.

Within cpu_for_gpu(), a tensor or module that is moved to a GPU stays where it is, and DDP is built
without device ids. Calls that select a GPU or wait for one do nothing. Features that need a real
GPU (streams, events, GradScaler) still fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")
_active = False


def active() -> bool:
    return _active


def _is_gpu(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


def _on_cpu(value: Any) -> Any:
    return CPU if _is_gpu(value) else value


class _OnCpu(TorchFunctionMode):
    """Runs every torch function with the CPU where a GPU is given."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        # A number can also stand for a device: x.to(0), torch.ones(1, device=0).
        if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], CPU, *args[2:])
        if type(kwargs.get("device")) is int:
            kwargs["device"] = CPU
        args = tuple(_on_cpu(value) for value in args)
        return func(*args, **{name: _on_cpu(value) for name, value in kwargs.items()})


def _module_to(to: Any) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(CPU if type(value) is int else _on_cpu(value) for value in args)
        return to(self, *args, **{name: _on_cpu(value) for name, value in kwargs.items()})

    return run


def _ddp_without_ids(init: Any) -> Any:
    def run(self: Any, module: Any, *_ids: Any, **options: Any) -> None:
        options.pop("device_ids", None)
        options.pop("output_device", None)
        init(self, module, **options)

    return run


@contextlib.contextmanager
def cpu_for_gpu() -> Iterator[None]:
    """Applies to the whole process. Existing threads still see GPUs in tensor calls."""
    global _active
    ddp = torch.nn.parallel.DistributedDataParallel
    patches = [
        mock.patch.object(torch.nn.Module, "to", _module_to(torch.nn.Module.to)),
        mock.patch.object(ddp, "__init__", _ddp_without_ids(ddp.__init__)),
        mock.patch.object(torch.cuda, "set_device", lambda device: None),
        mock.patch.object(torch.cuda, "synchronize", lambda device=None: None),
        mock.patch.object(torch.cuda, "current_device", lambda: 0),
        mock.patch.object(torch.cuda, "device", lambda device: contextlib.nullcontext()),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        stack.enter_context(_OnCpu())
        _active = True
        try:
            yield
        finally:
            _active = False
