"""DistributedOptimizer, which reduces the gradients of any optimizer as they are computed."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torch_ringdist._errors import ArgumentError
from torch_ringdist._settings import Settings
from torch_ringdist.horovod import _global_state
from torch_ringdist.horovod._async import grouped_allreduce_async_
from torch_ringdist.horovod._codec import Codec, OptimizerCompression
from torch_ringdist.horovod._compressed_gradients import CompressedGradients
from torch_ringdist.horovod._compression import Compression, Compressor
from torch_ringdist.horovod._gradients import Gradients, GradientSettings
from torch_ringdist.horovod._handles import synchronize
from torch_ringdist.horovod._reductions import Adasum, Average, ReduceOp, Sum
from torch_ringdist.horovod._sets import ProcessSet, global_process_set
from torch_ringdist.horovod._state import load_in_place

NamedParameters = Iterable[tuple[str, Tensor]]


class _Distributed(Optimizer):
    """Base of the classes that are derived from an optimizer's own class at run time."""

    _wrapped: type[Optimizer]  # class of the wrapped optimizer
    _gradients: Gradients
    _wrapped_one: Optimizer
    _should_synchronize = True
    _synchronized = False

    @property
    def _parameter_names(self) -> dict[Tensor, str]:
        return self._gradients.names

    @property
    def compression(self) -> OptimizerCompression | None:
        """Compression state if compression= is a codec and there are several ranks; else None."""
        gradients = self._gradients
        return gradients.compression if isinstance(gradients, CompressedGradients) else None

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of passes. Call it between two steps."""
        self._gradients.set_passes(passes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a parameter group like the optimizer's method. All ranks make the same call."""
        super().add_param_group(param_group)
        self._gradients.adopt(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state into the existing groups and state objects, so that schedulers, which hold
        the original optimizer, see the changes."""
        load_in_place(self, super().load_state_dict, state_dict)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced; missing gradients count as zeros."""
        self._gradients.synchronize()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Makes step() skip the reduction inside the block, for use after synchronize(), such as to
        clip gradients."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces the remaining gradients, then steps.

        Args:
            closure: computes the loss and its gradients, which are reduced after each call.
        """
        if closure is not None:
            return super().step(lambda: self._after(closure))
        self._reduce()
        return super().step()

    # torch adds its hooks to step() of the original class.
    step.hooked = True  # type: ignore[attr-defined]

    def _after(self, closure: Callable[[], Any]) -> Any:
        loss = closure()
        self._reduce()
        return loss

    def _reduce(self) -> None:
        # An earlier scheduler checks it.
        self._wrapped_one._opt_called = True  # type: ignore[attr-defined]
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(): the gradients are reduced twice",
                    stacklevel=3,
                )
            self.synchronize()
        self._synchronized = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients. Raises AssertionError while gradients are being reduced."""
        if self._gradients.any_open():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(): gradients are on their way"
            )
        super().zero_grad(set_to_none)

    def __reduce__(self) -> Any:
        it = self._gradients
        listed = [[it.names[p] for p in group["params"]] for group in self.param_groups]
        return _again, (type(self)._wrapped, self.__getstate__(), listed, it.settings, it.groups)


# Attributes that a wrapping optimizer does not copy: the reduction of gradients, and step() with
# the wrappers that schedulers add.
_OF_THIS_PROCESS = ("_gradients", "_wrapped_one", "step")


class _DistributedAdasum(_Distributed):
    """Combines steps instead of gradients. Each rank steps with its own gradients."""

    def synchronize(self) -> None:
        """Does nothing, because only steps are reduced."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps with this rank's gradients, then combines the changes of all ranks."""
        settings = self._gradients.settings
        if not self._gradients.takes_part:
            return super(_Distributed, self).step(closure)
        parameters = [p for group in self.param_groups for p in group["params"]]
        before = [p.detach().clone() for p in parameters]
        loss = super(_Distributed, self).step(closure)
        changes = [p.detach() - old for p, old in zip(parameters, before, strict=True)]
        handle = grouped_allreduce_async_(
            changes, op=Adasum, name="adasum.steps", process_set=settings.process_set
        )
        synchronize(handle)
        with torch.no_grad():
            for p, old, change in zip(parameters, before, changes, strict=True):
                p.copy_(old + change)
        return loss

    step.hooked = True  # type: ignore[attr-defined]


@functools.cache
def _class_over(wrapped: type[Optimizer], adasum: bool) -> type[_Distributed]:
    """Returns a class of the same name that derives from `wrapped`."""
    base = _DistributedAdasum if adasum else _Distributed
    return type(
        wrapped.__name__, (base, wrapped), {"_wrapped": wrapped, "__doc__": wrapped.__doc__}
    )


# Returns a distributed optimizer that shares groups and state with `optimizer`.
def _over(optimizer: Optimizer, names: dict[Tensor, str], settings: GradientSettings) -> Any:
    cls = _class_over(type(optimizer), settings.op == Adasum)  # type: ignore[arg-type]
    out = cls.__new__(cls)
    # The groups and state are shared, so schedulers that hold the original optimizer see no
    # difference.
    out.__dict__.update(optimizer.__dict__)
    for name in _OF_THIS_PROCESS:
        out.__dict__.pop(name, None)
    out._wrapped_one = optimizer
    coded = isinstance(settings.compression, Codec)
    out._gradients = (CompressedGradients if coded else Gradients)(out, names, settings)
    return out


def _again(
    wrapped: type[Optimizer],
    state: dict[str, Any],
    listed: list[list[str]],
    settings: GradientSettings,
    groups: list[list[str]],
) -> Any:
    """Rebuilds a distributed optimizer from a pickle."""
    plain = wrapped.__new__(wrapped)
    plain.__setstate__(state)
    names = {
        p: name
        for group, of_group in zip(plain.param_groups, listed, strict=True)
        for p, name in zip(group["params"], of_group, strict=True)
    }
    out = _over(plain, names, settings)
    parameters = {name: p for p, name in names.items()}
    out._gradients.set_groups([[parameters[name] for name in group] for group in groups])
    return out


# Returns the name of each parameter. Raises ValueError for missing, duplicate or invalid names.
def _names_of(optimizer: Optimizer, named: NamedParameters | None) -> dict[Tensor, str]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if named is None:
        return {
            p: f"noname.{i}.{j}"
            for i, group in enumerate(optimizer.param_groups)
            for j, p in enumerate(group["params"])
        }
    pairs = list(named)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ArgumentError(
            "DistributedOptimizer: named_parameters must be (name, parameter) tuples, as "
            "model.named_parameters() has them"
        )
    names = [name for name, _ in pairs]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ArgumentError(
            f"DistributedOptimizer: names in named_parameters must be unique; several are called "
            f"{', '.join(doubles)}"
        )
    out = {p: name for name, p in pairs}
    unnamed = sum(p not in out for p in parameters)
    if unnamed:
        raise ArgumentError(
            f"DistributedOptimizer: named_parameters lacks {unnamed} of the optimizer's "
            f"{len(parameters)} parameters"
        )
    return {p: out[p] for p in parameters}


def DistributedOptimizer(
    optimizer: Optimizer,
    named_parameters: NamedParameters | None = None,
    compression: type[Compressor] | Codec | str = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    average_aggregated_gradients: bool = False,
) -> Any:
    """Returns an optimizer that steps with gradients reduced over all ranks.

    The reduction of each gradient begins as soon as the backward pass has computed it.

    Args:
        optimizer: an optimizer of torch.optim. The result derives from its class and shares its
            groups and state.
        named_parameters: model.named_parameters(), the same on all ranks. Otherwise parameters are
            named by their position.
        compression: Compression.none, Compression.fp16, or a similar class. Or a codec of
            docs/reference/codecs.md, such as "int4", "auto", "powersgd:4", or
            Compression.codec(...).
            With a codec, gradients are sent in buckets like those of DistributedDataParallel. The
            attribute .compression of the result then reports the savings and has the state for
            checkpoints.
        backward_passes_per_step: number of backward passes that are added up before the reduction.
        op: Average or Sum; Adasum combines steps instead.
        gradient_predivide_factor: divisor of gradients before the sum, for Average. The sum is then
            multiplied by factor / size.
        num_groups: older form of groups, as a number.
        groups: number of groups, or lists of parameters. Each group is reduced as one operation
            when all its gradients are ready.
        sparse_as_dense: send sparse gradients as dense ones, and convert the result back. Otherwise
            they are gathered.
        process_set: the ranks. On other ranks the optimizer is unchanged.
        average_aggregated_gradients: divide by backward_passes_per_step.

    Returns:
        The optimizer, with synchronize(), skip_synchronize() and set_backward_passes_per_step().

    Raises:
        ValueError: init() was not called, or a number is not accepted. Also if names are invalid,
            missing or duplicate.
    """
    _global_state.required()
    if isinstance(optimizer, _Distributed):
        raise ArgumentError("DistributedOptimizer: the optimizer is one already")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ArgumentError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step < 1:
        raise ArgumentError(f"backward_passes_per_step must be > 0, got {backward_passes_per_step}")
    if num_groups:
        warnings.warn("num_groups has been renamed to groups", DeprecationWarning, stacklevel=2)
        groups = groups or num_groups
    if isinstance(compression, str):
        compression = Codec(Settings(compression))
    if isinstance(compression, Codec):
        if op not in (Average, Sum):
            raise ArgumentError(
                "DistributedOptimizer: a codec as compression= goes with op=hvd.Average or "
                f"hvd.Sum, got {op}"
            )
        if gradient_predivide_factor != 1.0:
            raise ArgumentError(
                "DistributedOptimizer: gradient_predivide_factor is not for a codec as compression="
            )
    settings = GradientSettings(
        compression,
        backward_passes_per_step,
        ReduceOp(op),
        gradient_predivide_factor,
        sparse_as_dense,
        process_set,
        average_aggregated_gradients,
    )
    out = _over(optimizer, _names_of(optimizer, named_parameters), settings)
    out._gradients.set_groups(groups)
    return out
