"""Gradient compression for DistributedDataParallel.

    model = DistributedDataParallel(model)
    compression = torch_ringdist.ddp.compress(model, "int4")
    ...  # train as before
    print(compression.stats())

docs/how-to/choose-a-codec.md describes which codec to choose, and when not to compress.
"""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel

from torch_ringdist import _native
from torch_ringdist._compress import CompressState, compress_hook
from torch_ringdist._log_to import Writer
from torch_ringdist._settings import Settings, takes

Compression = CompressState

__all__ = ["Compression", "compress", "log_to"]


@takes(Settings)
def compress(model: DistributedDataParallel, settings: Settings) -> Compression:
    """Compresses the gradients of `model`, with error feedback if the codec is coarse.

    Gradients are averaged over the group, as DDP does, by a hook without Python. All ranks call
    this function with the same arguments, before the first backward pass.

    Args:
        model: a model over a group of the backend ringdist, on the CPU or on CUDA, without another
            hook.
        {settings}

    Returns:
        An object with stats(), residual_norm(), state_dict() and load_state_dict().

    Raises:
        TypeError: an argument of the wrong type, a model on another device.
        ValueError: a value that is not accepted, a group of another backend.
        RuntimeError: the model already has a hook. DDP accepts one hook, which cannot be removed.
    """
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(
            "ringdist: compress: model must be a torch.nn.parallel.DistributedDataParallel, "
            f"got {type(model).__name__}"
        )
    if hooks := model._comm_hooks:
        raise RuntimeError(_has_hook(*hooks[0]))
    state = CompressState(**vars(settings), model=model, process_group=model.process_group)
    _native.load().register_comm_hook(model.reducer, state._bind())
    assert model.logger is not None, "DistributedDataParallel always makes one"
    model.logger._set_comm_hook_name(f"torch_ringdist.ddp.compress({settings.codec!r})")
    # DDP with a compiled reducer reads this list, and then gets an error instead of no compression.
    model._comm_hooks.append((compress_hook, state))
    return state


def _has_hook(hook: Any, state: Any) -> str:
    name = getattr(hook, "__name__", repr(hook))
    return (
        "ringdist: compress: the model has a communication hook already, "
        f"{state if isinstance(state, CompressState) else name!r}, and DDP takes one for good. To "
        "change codecs in training give schedule=; for other settings compress() a new "
        "DistributedDataParallel(model.module), and give it what the old one owes: "
        "load_state_dict(old.state_dict(local=True))"
    )


def log_to(writer: Writer, handle: Compression, step: int | None = None) -> None:
    """Writes the figures of the last step to TensorBoard as ringdist/...; call it after a step.

    Args:
        writer: a SummaryWriter, or an object with the same add_scalar.
        handle: the result of compress(), or a CompressState.
        step: the global step, or None for the number of steps that `handle` has counted.
    """
    stats = handle.stats()
    if stats["step"] < 0:
        return
    at = stats["step"] if step is None else step
    last = stats["last"]
    values = {
        "bytes_saved": last["bytes_saved"],
        "share_of_bytes_saved": last["bytes_saved"] / max(last["bytes_uncompressed"], 1),
        "residual_norm": stats["residual_norm"],
    }
    if stats["measured_step"] == stats["step"]:
        values["relative_error"] = last["relative_error"]
    for name, value in values.items():
        writer.add_scalar(f"ringdist/{name}", value, at)
