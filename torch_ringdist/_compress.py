"""The state of a gradient-compressing hook, and the hook in its ordinary, Python form."""

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
    """How the gradients of one model are compressed, and what compression owes them.

    For ``ddp_model.register_comm_hook(CompressState(...), compress_hook)``, and so for Lightning,
    Accelerate and others that take such a pair. ``torch_ringdist.ddp.compress`` makes one and
    registers a hook without Python in it.

    Its methods are called between steps, not while a backward pass runs. A copy of it (as of a
    whole DDP model, by copy.deepcopy or pickle) has neither group nor model: using it raises.
    """

    _copied = False
    _all_buckets_come = False  # also those of which nothing was computed

    @takes(StateSettings)
    def __init__(self, settings: StateSettings) -> None:
        """Take what ``torch_ringdist.ddp.compress`` takes, the model being optional.

        Args:
            {settings}
            model: the model, before or after it went into DistributedDataParallel. It gives
                parameters their names. Without it, `rules` cannot be given, norms and embeddings
                are not known, and state_dict() calls parameters by the order of their first
                gradients.
            process_group: of the backend ringdist; the default group if None.

        Raises:
            TypeError: an argument of the wrong type, a model on another device than cpu and cuda.
            ValueError: a value that is not accepted. Some show when the group is known, at the
                first step.
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
        if self._native is None:  # not in use yet: nothing of it is of this process
            return dict(self.__dict__)
        # Neither group nor connections can be copied; a DDP model that has this state can.
        here = dict.fromkeys(("_native", "_group", "_model"))
        settings = self._settings.without_objects()
        return {**self.__dict__, **here, "_settings": settings, "_copied": True}

    def __repr__(self) -> str:
        said = [f"{name}={value!r}" for name, value in self._settings.changed().items()]
        text = ", ".join([repr(self._settings.codec), *said])
        return f"CompressState({text})" + (", a copy" if self._copied else "")

    def state_dict(self, *, local: bool = False) -> dict[str, Any]:
        """What a checkpoint needs: steps, loss scale, and the sum of all ranks' residuals.

        All ranks call it; rank 0 gets the sums, by the names of parameters, and saves them. On the
        others "residuals" is None.

        Args:
            local: no communication: the residuals are those of this rank alone, whose world size
                is 1. After a failure, when the group is of no use any more: each rank loads its own
                and goes on with another group.

        Raises:
            torch.distributed.DistBackendError: as any operation, unless `local`.
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
        """As state_dict(local=True), for a step that may have succeeded on another rank while it
        failed here. Then this object is of no more use."""
        return self._as_dict(*self._bind().state(committed=True))

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
        """Goes on from what rank 0 saved; each rank is given that, whatever the number of ranks.

        Every rank takes the sum of the saved residuals divided by the world size of then: the mean
        that is still owed to the parameters is unchanged. Of state_dict(local=True), each rank is
        given its own.

        Raises:
            TypeError: not what state_dict() returned.
            ValueError: the state of another rank than 0, an unknown version, a value that is not
                finite or not possible, parameters that this model does not have, or of other sizes.
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
        """The 2-norm of all that this rank owes, divided by the loss scale if there is a scaler."""
        return self._bind().residual_norm()

    def stats(self) -> dict[str, Any]:
        """What this rank saved and lost, in the last step and in all.

        Keys: step (-1 before the first), codec, chosen (by "auto": the codec of each bucket, in the
        order of their reduction; empty before it has chosen), reason (why),
        residual_norm (as the method), and "last" and "total", each with
        bytes_uncompressed and bytes_saved (of what this rank sends, by the size of its gradients
        and the formats of the codecs), and relative_error: the 2-norm of what was lost divided by
        that of what was given, over the parameters with error feedback. It is None before the
        first measurement; the last one was in step "measured_step".
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
        """The native state, made when the group is known."""
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
        self._model = None  # it holds this state, through its hook
        self._native = made
        return made

    def _resolve(self, smallest: int) -> list[_rules.Rule]:
        if self._model is None:
            return []
        return _rules.resolve(self._model, self._settings.rules, smallest)

    def _at_step(self) -> Callable[[int], tuple[str, float]] | None:
        # It must not hold this state, which would then never be freed.
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
    """The hook for ``register_comm_hook``: compresses and averages a bucket as `state` says.

    Raises:
        TypeError: `state` is no CompressState, `bucket` is no GradBucket (DDP whose reducer is
            compiled has none), or a gradient is sparse.
    """
    if not isinstance(state, CompressState):
        raise TypeError(arguments.message("state", "a torch_ringdist.CompressState", state))
    if not isinstance(bucket, dist.GradBucket):  # DDP with torch._dynamo's python_reducer
        raise TypeError(arguments.message("bucket", "a torch.distributed.GradBucket", bucket))
    return state._bind().run(bucket).then(_only)


# DDP compares annotations with the objects, not with their text.
compress_hook.__annotations__.update(
    {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
)


def _add_up(group: Any, residual: torch.Tensor) -> None:
    try:
        _native.load().sum_of_state(group, residual)
    except RuntimeError as error:
        raise type(error)(
            "ringdist: CompressState.state_dict() adds up the residuals of all ranks, so all of "
            "them must call it; state_dict(local=True) is for one rank alone, also when the group "
            f"has failed: {error}"
        ) from error


def _only(future: torch.futures.Future) -> torch.Tensor:
    return future.value()[0]


def _group_of(model: Any, group: Any) -> Any:
    if not isinstance(model, DistributedDataParallel):
        return group
    if group is not None and group is not model.process_group:
        raise ValueError(
            "ringdist: compress: process_group is another group than the one that model, a "
            "DistributedDataParallel, averages over; leave it out"
        )
    return model.process_group
