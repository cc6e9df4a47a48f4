"""What ddp.compress() and CompressState take, in one place: names, types, defaults, meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch.distributed as dist
from torch import nn

from torch_ringdist import _arguments as arguments

Schedule = Mapping[int, str] | Callable[[int], str]

_P = ParamSpec("_P")
_Subject = TypeVar("_Subject")
_Settings = TypeVar("_Settings")
_Returned = TypeVar("_Returned")


@dataclass(frozen=True, eq=False)
class Settings:
    """How gradients are compressed.

    Args:
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
        measure_every: steps between two measurements of the relative error, which read the
            gradients once more; 0 for never.
    """

    codec: str = "int4"
    _: KW_ONLY
    rules: Mapping[str, str] | None = None
    warmup_steps: int = 0
    schedule: Schedule | None = None
    error_feedback: bool | None = None
    scaler: Any = None
    guard: float | None = None
    measure_every: int = 10

    def check(self, model: Any) -> None:
        """Raise TypeError or ValueError for what is not accepted."""
        arguments.check_text("codec", self.codec)
        arguments.check_count("warmup_steps", self.warmup_steps)
        arguments.check_count("measure_every", self.measure_every)
        arguments.check_rules(self.rules, model)
        arguments.check_schedule(self.schedule)
        arguments.check_guard(self.guard)
        if self.error_feedback is not None and not isinstance(self.error_feedback, bool):
            raise TypeError(
                arguments.message("error_feedback", "True, False or None", self.error_feedback)
            )
        if self.scaler is not None and not callable(getattr(self.scaler, "get_scale", None)):
            raise TypeError(
                arguments.message("scaler", "a torch.amp.GradScaler or None", self.scaler)
            )

    def changed(self) -> dict[str, Any]:
        """Those that are not at their default, but for the codec."""
        given = {field.name: getattr(self, field.name) for field in fields(Settings)[1:]}
        defaults = {field.name: field.default for field in fields(Settings)}
        return {name: value for name, value in given.items() if value != defaults[name]}

    def without_objects(self) -> Settings:
        """As far as other processes and copies can have them."""
        schedule = self.schedule if isinstance(self.schedule, Mapping) else None
        return replace(self, schedule=schedule, scaler=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class StateSettings(Settings):
    """Those that CompressState takes besides; it documents them."""

    model: nn.Module | None = None
    process_group: dist.ProcessGroup | None = None


def takes(
    kind: Callable[_P, _Settings],
) -> Callable[
    [Callable[[_Subject, _Settings], _Returned]], Callable[Concatenate[_Subject, _P], _Returned]
]:
    """Make a function of something and Settings take the settings one by one.

    Its signature lists them, and its docstring in place of "{settings}".
    """
    make: Callable[..., _Settings] = kind
    listed = list(inspect.signature(kind).parameters.values())

    def decorate(
        function: Callable[[_Subject, _Settings], _Returned],
    ) -> Callable[Concatenate[_Subject, _P], _Returned]:
        own = inspect.signature(function)
        subject = next(iter(own.parameters.values()))
        signature = own.replace(parameters=[subject, *listed])

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                given = signature.bind(*args, **named).arguments
            except TypeError as error:
                raise TypeError(f"{function.__qualname__}() {error}") from None
            first: Any = given.pop(subject.name)
            return function(first, make(**given))

        call.__signature__ = signature  # type: ignore[attr-defined]
        if function.__doc__ and Settings.__doc__:
            _, _, meanings = inspect.cleandoc(Settings.__doc__).partition("Args:\n    ")
            call.__doc__ = inspect.cleandoc(function.__doc__).replace("{settings}", meanings)
        return call

    return decorate
