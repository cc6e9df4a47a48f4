"""Settings of ddp.compress() and CompressState in one place: names, types, defaults, meaning."""

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
        codec: "int4", "topk:0.01", "onebit>int4" and others. ``python -m torch_ringdist info``
            lists them.
        rules: codecs by pattern (as of fnmatch) of parameter names, such as `{"embed*": "int8",
            "*norm*": "none"}`. The first match wins. Without a match, norms and parameters of fewer
            than 1024 elements stay uncompressed, and embeddings use at least the bits of int8.
        warmup_steps: number of first steps that stay uncompressed.
        schedule: a mapping from step to the codec that replaces `codec` from then on. Or a Python
            function that is called at the start of each step, and must return the same codec on all
            ranks. Steps are backward passes that synchronize and succeed, counted from 0. Rules
            apply whatever the schedule returns, even "none". Only warm-up steps ignore them.
        error_feedback: keep what the codec loses and add it to the next gradients. None enables it
            for codecs that have it by default, which are those below 8 bits. It costs 8 bytes per
            element on each rank.
        scaler: the GradScaler of the training. Residuals follow its changes of scale. Without it,
            their norm is in units of the scaled loss.
        guard: limit for the norm of a parameter's local gradient, as a multiple of its running
            mean. A good value is 10. Without a limit, error feedback would spread a spike over many
            steps.
        measure_every: steps between two measurements of the relative error, or 0 for none. A
            measurement reads the gradients once more.
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
        """Raises TypeError or ValueError for a value that is not accepted."""
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
        """Returns the settings that differ from their default, except the codec."""
        given = {field.name: getattr(self, field.name) for field in fields(Settings)[1:]}
        defaults = {field.name: field.default for field in fields(Settings)}
        return {name: value for name, value in given.items() if value != defaults[name]}

    def without_objects(self) -> Settings:
        """Returns the settings that can be copied to other processes, without functions and the
        scaler."""
        schedule = self.schedule if isinstance(self.schedule, Mapping) else None
        return replace(self, schedule=schedule, scaler=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class StateSettings(Settings):
    """Adds the settings that only CompressState takes; its constructor documents them."""

    model: nn.Module | None = None
    process_group: dist.ProcessGroup | None = None


def takes(
    kind: Callable[_P, _Settings],
) -> Callable[
    [Callable[[_Subject, _Settings], _Returned]], Callable[Concatenate[_Subject, _P], _Returned]
]:
    """Returns a decorator that makes a function of (subject, Settings) take the settings one by
    one.

    The signature then lists the settings, and the docstring describes them in place of
    "{settings}".
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
