"""State of a gradient-compressing hook, and the hook as a Python function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torch_ringdist import _arguments as arguments
from torch_ringdist import _native, _rules
from torch_ringdist._collectives import backend_of
from torch_ringdist._settings import Settings, StateSettings, takes


class CompressState:
    """Holds how the gradients of one model are compressed, and the residuals of that compression.

    It is for ``ddp_model.register_comm_hook(CompressState(...), compress_hook)``, and so for
    Lightning, Accelerate and other libraries that accept such a pair.
    ``torch_ringdist.ddp.compress`` creates one and registers a hook without Python in it.

    Call its methods between steps, not while a backward pass runs. A copy of it has neither group
    nor model, and using it raises ValueError. copy.deepcopy or pickle of a whole DDP model makes
    such a copy.
    """

    _copied = False
    _all_buckets_come = False  # True if buckets without any gradient are reduced too

    @takes(StateSettings)
    def __init__(self, settings: StateSettings) -> None:
        """Takes the arguments of ``torch_ringdist.ddp.compress``; the model is optional.

        Args:
            {settings}
            model: the model, before or after it was wrapped in DistributedDataParallel. It gives
                parameters their names. Without it, `rules` cannot be given, norms and embeddings
                are not recognized, and state_dict() numbers parameters in the order of their first
                gradients.
            process_group: a group of the backend ringdist; the default group if None.

        Raises:
            TypeError: an argument of the wrong type, a model on a device other than cpu and cuda.
            ValueError: a value that is not accepted. Some values are checked only when the group is
                available, at the first step.
        """
        settings.check(settings.model)
        self._settings: Settings = replace(settings, model=None, process_group=None)
        self._model = settings.model
        self._group = _group_of(settings.model, settings.process_group)
        self._shapes: dict[str, torch.Size] = {}
        self._native: Any = None
        if dist.is_initialized():
            self._bind()

    def __getstate__(self) -> dict[str, Any]:
        if self._native is None:  # not in use yet, so nothing is bound to this process
            return dict(self.__dict__)
        # The group and its connections cannot be copied, but a DDP model with this state can.
        here = dict.fromkeys(("_native", "_group", "_model"))
        settings = self._settings.without_objects()
        return {**self.__dict__, **here, "_settings": settings, "_copied": True}

    def __repr__(self) -> str:
        said = [f"{name}={value!r}" for name, value in self._settings.changed().items()]
        text = ", ".join([repr(self._settings.codec), *said])
        return f"CompressState({text})" + (", a copy" if self._copied else "")

    def state_dict(self, *, local: bool = False) -> dict[str, Any]:
        """Returns what a checkpoint needs: steps, loss scale, and the sum of all ranks' residuals.

        All ranks call it. Rank 0 gets the sums, by parameter name, and saves them. On the other
        ranks "residuals" is None.

        Args:
            local: do not communicate, and return the residuals of this rank alone with a world size
                of 1. This works after a failure, when the group is unusable. Each rank then loads
                its own state and continues with another group.

        Raises:
            torch.distributed.DistBackendError: the reduction failed; never with `local`.
        """
        group = None if local else self._backend()
        steps, scale, residuals = self._bind().state()
        if group is not None:
            for _, mine in residuals:
                _add_up(group, mine)
        return {
            **self._as_dict(steps, scale, residuals),
            "world_size": 1 if group is None else group.size(),
            **({} if group is None or group.rank() == 0 else {"residuals": None}),
        }

    def _committed(self) -> dict[str, Any]:
        """Returns state_dict(local=True) for a step that failed here but may have succeeded on
        another rank. This object is unusable afterwards."""
        return self._as_dict(*self._bind().state(committed=True))

    # Returns the dict of state_dict() with the residuals in the shapes of their parameters.
    def _as_dict(
        self, steps: int, scale: float, residuals: list[tuple[str, torch.Tensor]]
    ) -> dict[str, Any]:
        shaped = {name: t.reshape(self._shapes.get(name, t.shape)) for name, t in residuals}
        return {
            "version": 1,
            "steps": steps,
            "scale": scale,
            "world_size": 1,
            "residuals": shaped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that rank 0 saved; each rank gets that state, whatever the number
        of ranks.

        Every rank takes the sum of the saved residuals divided by the world size at that time. This
        keeps the mean of the residuals unchanged. A state of state_dict(local=True) goes to the
        rank that made it.

        Raises:
            TypeError: not a result of state_dict().
            ValueError: the state of a rank other than 0, an unknown version, or a value that is not
                finite or not possible. Also for parameters that this model does not have, or of
                other sizes.
        """
        native = self._bind()
        arguments.check_state(state)
        if self._shapes and (unknown := sorted(set(state["residuals"]) - set(self._shapes))):
            raise ValueError(
                f"ringdist: load_state_dict: the model has no parameter {unknown[0]!r} "
                f"({len(unknown)} of {len(state['residuals'])} names are unknown)"
            )
        for name, total in state["residuals"].items():
            if total.shape != (shape := self._shapes.get(name, total.shape)):
                raise ValueError(
                    f"ringdist: load_state_dict: the residual of {name!r} has shape "
                    f"{list(total.shape)}, the parameter {list(shape)}"
                )
        each = 1 / state["world_size"]
        residuals = [
            (name, (total.float().cpu() * each).reshape(-1).contiguous())
            for name, total in state["residuals"].items()
        ]
        native.load(state["steps"], state["scale"], residuals)

    def residual_norm(self) -> float:
        """Returns the 2-norm of this rank's residuals, divided by the loss scale if there is a
        scaler."""
        return self._bind().residual_norm()

    def stats(self) -> dict[str, Any]:
        """Returns the savings and losses of compression on this rank, for the last step and in
        total.

        Keys:

            step: the last step, or -1 before the first.
            codec: the codec of that step.
            chosen: for "auto", the codec of each bucket in the order of their reduction. It is
                empty before "auto" has chosen.
            reason: the reason for that choice.
            residual_norm: the result of residual_norm().
            measured_step: the step of the last measurement, or None before the first.
            last, total: dicts with bytes_uncompressed, bytes_saved and relative_error.

        The bytes are those that this rank sends, computed from gradient sizes and codec formats.
        relative_error covers the parameters with error feedback. It is the 2-norm of the loss
        divided by that of the input, or None before the first measurement.
        """
        r = self._bind().report()
        measured = r["measured_step"] >= 0

        def part(prefix: str, uncompressed: float, sent: float) -> dict[str, Any]:
            return {
                "bytes_uncompressed": round(uncompressed),
                "bytes_saved": round(uncompressed - sent),
                "relative_error": r[f"{prefix}relative_error"] if measured else None,
            }

        return {
            "step": r["step"],
            "codec": r["codec"],
            "chosen": r["chosen"],
            "reason": r["reason"],
            "residual_norm": r["residual_norm"],
            "measured_step": r["measured_step"] if measured else None,
            "last": part("", r["bytes_uncompressed"], r["bytes_sent"]),
            "total": part("total_", r["total_uncompressed"], r["total_sent"]),
        }

    def _backend(self) -> Any:
        return backend_of(self._group, "compress")

    def _bind(self) -> Any:
        """Returns the native state, and creates it on the first call. This needs the group.

        Raises:
            ValueError: this object is a copy, or the group does not exist or has another backend.
            TypeError: a parameter is on a device other than cpu and cuda.
        """
        if self._native is not None:
            return self._native
        if self._copied:
            raise ValueError(
                "ringdist: compress: this CompressState is a copy, which has neither group nor "
                "model; make one for the model that it is to serve, and load_state_dict()"
            )
        backend = self._backend()
        native = _native.load()
        settings = self._settings
        rules = self._resolve(native.MIN_COMPRESSED)
        schedule = settings.schedule
        made = native.Compression(
            group=backend,
            codec=settings.codec,
            schedule=dict(schedule) if isinstance(schedule, Mapping) else {},
            at_step=self._at_step(),
            warmup_steps=settings.warmup_steps,
            error_feedback=settings.error_feedback,
            guard=settings.guard or 0.0,
            measure_every=settings.measure_every,
            all_buckets_come=self._all_buckets_come,
        )
        for rule in rules:
            if rule.parameter.device.type not in ("cpu", "cuda"):
                raise TypeError(
                    f"ringdist: compress: parameter {rule.name!r} is on "
                    f"{rule.parameter.device}; gradients are compressed on cpu and cuda"
                )
            made.add_parameter(rule.parameter, rule.name, rule.codec, rule.coarsest)
            self._shapes[rule.name] = rule.parameter.shape
        self._model = None  # it holds this state through its hook
        self._native = made
        return made

    # Returns the rule of each parameter; none without a model.
    def _resolve(self, smallest: int) -> list[_rules.Rule]:
        if self._model is None:
            return []
        return _rules.resolve(self._model, self._settings.rules, smallest)

    def _at_step(self) -> Callable[[int], tuple[str, float]] | None:
        # The returned function must not reference this state, which would then never be freed.
        scaler, schedule = self._settings.scaler, self._settings.schedule
        if scaler is None and not callable(schedule):
            return None

        def at_step(step: int) -> tuple[str, float]:
            codec = ""
            if callable(schedule):
                codec = schedule(step)
                arguments.check_text(f"schedule({step})", codec)
            return codec, 0.0 if scaler is None else float(scaler.get_scale())

        return at_step


def compress_hook(
    state: CompressState, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Compresses and averages a bucket as `state` specifies; the hook for ``register_comm_hook``.

    Raises:
        TypeError: `state` is not a CompressState, or a gradient is sparse. Also if `bucket` is not
            a GradBucket, as with a compiled reducer of DDP.
    """
    if not isinstance(state, CompressState):
        raise TypeError(arguments.message("state", "a torch_ringdist.CompressState", state))
    if not isinstance(bucket, dist.GradBucket):  # DDP with torch._dynamo's python_reducer
        raise TypeError(arguments.message("bucket", "a torch.distributed.GradBucket", bucket))
    return state._bind().run(bucket).then(_only)


# DDP compares annotations with types, not with their text.
compress_hook.__annotations__.update(
    {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
)


# Sums a residual over the ranks of the group in place; an error explains local=True.
def _add_up(group: Any, residual: torch.Tensor) -> None:
    try:
        _native.load().sum_of_state(group, residual)
    except RuntimeError as error:
        raise type(error)(
            "ringdist: CompressState.state_dict() adds up the residuals of all ranks, so all of "
            "them must call it; state_dict(local=True) is for one rank alone, also when the group "
            f"has failed: {error}"
        ) from error


# Returns the only tensor of a finished future.
def _only(future: torch.futures.Future) -> torch.Tensor:
    return future.value()[0]


# Returns the group of a DDP model, or `group` for another model.
#
# Raises:
#
#     ValueError: `group` is not the group of the DDP model.
def _group_of(model: Any, group: Any) -> Any:
    if not isinstance(model, DistributedDataParallel):
        return group
    if group is not None and group is not model.process_group:
        raise ValueError(
            "ringdist: compress: process_group is another group than the one that model, a "
            "DistributedDataParallel, averages over; leave it out"
        )
    return model.process_group
