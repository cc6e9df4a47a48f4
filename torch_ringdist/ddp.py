"""Gradient compression for DistributedDataParallel.

    model = DistributedDataParallel(model)
    compression = torch_ringdist.ddp.compress(model, "int4")
    ...  # train as before
    print(compression.stats())

docs/compression.md says which codec to take, and when not to compress.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch.nn.parallel import DistributedDataParallel

from torch_ringdist import _native
from torch_ringdist._compress import CompressState, Schedule, compress_hook

Compression = CompressState

__all__ = ["Compression", "compress", "log_to"]


def compress(
    model: DistributedDataParallel,
    codec: str = "int4",
    *,
    rules: Mapping[str, str] | None = None,
    warmup_steps: int = 0,
    schedule: Schedule | None = None,
    error_feedback: bool | None = None,
    scaler: Any = None,
    guard: float | None = None,
    measure_every: int = 10,
) -> Compression:
    """Compress the gradients of `model`, with error feedback where the codec is coarse.

    Gradients are averaged over the group, as DDP does, by a hook without Python. All ranks call
    this with the same arguments, before the first backward pass.

    Args:
        model: over a group of the backend ringdist, on the CPU, without another hook.
        codec: "int4", "topk:0.01", "onebit>int4", ...; ``python -m torch_ringdist info`` lists
            them.
        rules: codecs by pattern (as of fnmatch) of parameter names, the first match wins:
            ``{"embed*": "int8", "*norm*": "none"}``. Where none matches, parameters of less than
            1024 elements and those of norms stay uncompressed, and embeddings take at least the
            bits of int8.
        warmup_steps: so many steps are uncompressed at first.
        schedule: from step to the codec in place of `codec` from then on, or a function that is
            asked for it at the start of each step, in Python, and says the same on all ranks.
            Steps are backward passes that synchronise and succeed, counted from 0. Rules hold
            whatever it says, "none" included; only warm-up steps are without.
        error_feedback: keep what is lost and add it to the next gradients. None: where the codec
            has it by default, that is below 8 bits. Costs 8 bytes per element on each rank.
        scaler: the GradScaler of the training, whose changes of scale the residuals follow.
            Without it their norm is in units of the scaled loss.
        guard: cap the norm of a parameter's local gradient at so many times its running mean (10
            is a good number): through error feedback a spike would act for many steps.
        measure_every: steps between two measurements of the relative error; 0 for never.

    Returns:
        Its stats(), residual_norm(), state_dict() and load_state_dict().

    Raises:
        TypeError: an argument of the wrong type, a model that is not on the CPU.
        ValueError: a value that is not accepted, a group of another backend.
        RuntimeError: the model has a hook already: DDP takes one, for good.
    """
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(
            "ringdist: compress: model must be a torch.nn.parallel.DistributedDataParallel, "
            f"got {type(model).__name__}"
        )
    if hooks := model._comm_hooks:
        raise RuntimeError(_has_hook(*hooks[0]))
    state = CompressState(
        codec,
        model=model,
        process_group=model.process_group,
        rules=rules,
        warmup_steps=warmup_steps,
        schedule=schedule,
        error_feedback=error_feedback,
        scaler=scaler,
        guard=guard,
        measure_every=measure_every,
    )
    _native.load().register_comm_hook(model.reducer, state._bind())
    model.logger._set_comm_hook_name(f"torch_ringdist.ddp.compress({codec!r})")
    # DDP with a compiled reducer looks here: it then gets an error, not silence.
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


class Writer(Protocol):
    """What log_to() needs of a torch.utils.tensorboard.SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None) -> Any: ...


def log_to(writer: Writer, handle: Compression, step: int | None = None) -> None:
    """Write the figures of the last step to TensorBoard, as ringdist/...; call it after a step.

    Args:
        writer: a SummaryWriter, or anything with its add_scalar.
        handle: what compress() returned, or a CompressState.
        step: the global step; None for the steps that `handle` has counted.
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
