"""Reduces the gradients of an optimizer's parameters as the backward pass computes them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod import _autotune, _global_state
from torch_ringdist.horovod._async import grouped_allreduce_async_, start_sparse
from torch_ringdist.horovod._handles import forget, release_name, synchronize_all
from torch_ringdist.horovod._reductions import Adasum, ReduceOp

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from torch_ringdist.horovod._codec import Codec
    from torch_ringdist.horovod._compression import Compressor
    from torch_ringdist.horovod._sets import ProcessSet


@dataclass(frozen=True)
class GradientSettings:
    """Settings with the names and meanings of DistributedOptimizer's arguments."""

    compression: type[Compressor] | Codec
    backward_passes_per_step: int
    op: ReduceOp
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet
    average_aggregated_gradients: bool


@dataclass(eq=False)
class GradientGroup:
    """Parameters with gradients that are reduced as one operation."""

    name: str
    parameters: list[Tensor]
    missing: set[Tensor] = field(default_factory=set)  # without a gradient yet in this step
    handles: list[int] = field(default_factory=list)  # handles of operations in flight
    finish: list[Callable[[Any], None]] = field(default_factory=list)  # called with each result

    # Resets the group for the next step.
    def start_anew(self) -> None:
        self.missing = set(self.parameters)
        self.handles, self.finish = [], []


class Gradients:
    """Starts reductions from gradient hooks and waits for them in synchronize().

    Hooks reference it weakly, so it ends with its optimizer.
    """

    def __init__(
        self, optimizer: Optimizer, names: dict[Tensor, str], settings: GradientSettings
    ) -> None:
        self.names = names
        self.settings = settings
        self._compressor: Any = settings.compression
        self._passes = settings.backward_passes_per_step
        self._left: dict[Tensor, int] = {}
        self._bundles: list[GradientGroup] = []
        self._bundle_of: dict[Tensor, GradientGroup] = {}
        self._hooked: set[Tensor] = set()
        self._optimizer = weakref.ref(optimizer)
        self._global_state: weakref.ref[_global_state.GlobalState] | None = None
        self._follow()
        self.adopt(optimizer)

    def __del__(self) -> None:
        for bundle in self._bundles:
            forget(bundle.handles)

    def adopt(self, optimizer: Optimizer) -> None:
        """Adds parameters that are new or have begun to require gradients."""
        for i, group in enumerate(optimizer.param_groups):
            for j, p in enumerate(group["params"]):
                self.names.setdefault(p, f"noname.{i}.{j}")
                if p.requires_grad and p not in self._bundle_of:
                    self._add_bundle(self.names[p], [p])
                    self._left[p] = self._passes
                self._hook(p)

    def _follow(self) -> bool:
        """Switches to the present global state if it has changed by init() or a reset.

        Operations in flight ended with the previous state. Returns True if the state has changed.
        """
        world = _global_state.current() if self._global_state else _global_state.required()
        if world is None or (self._global_state and self._global_state() is world):
            return False
        process_set = self.settings.process_set
        self._included = process_set.included()
        self._takes_part = self._included and process_set.size() > 1
        # Adasum combines steps that use the rank's own gradients.
        self._reduces = self._takes_part and self.settings.op != Adasum
        self._global_state = weakref.ref(world)
        for bundle in self._bundles:
            forget(bundle.handles)
            bundle.start_anew()
        self.set_passes(self._passes)
        for p in self._bundle_of:
            self._hook(p)
        return True

    @property
    def takes_part(self) -> bool:
        """True if this rank is in the process set together with others."""
        self._follow()
        return self._takes_part

    # Registers a hook on the parameter, once. A frozen one gets it when it is adopted later.
    def _hook(self, p: Tensor) -> None:
        if self._reduces and p.requires_grad and p not in self._hooked:
            self._hooked.add(p)
            own = weakref.ref(self)
            p.register_post_accumulate_grad_hook(lambda p: _tell(own, p))

    def _add_bundle(self, name: str, parameters: list[Tensor]) -> GradientGroup:
        bundle = GradientGroup(name, parameters)
        bundle.start_anew()
        self._bundles.append(bundle)
        self._bundle_of.update(dict.fromkeys(parameters, bundle))
        return bundle

    # Sets the number of backward passes per step.
    def set_passes(self, passes: int) -> None:
        self._passes = passes
        self._left = dict.fromkeys(self._bundle_of, passes)

    def set_groups(self, groups: int | Sequence[Sequence[Tensor]] | None) -> None:
        """Sets which gradients are reduced together. Call it before the first backward pass.

        Raises:
            ValueError: a negative number, a parameter in two lists, or one that the optimizer does
                not have.
        """
        if not groups:
            return
        all_of_it = list(self._bundle_of)
        if isinstance(groups, int):
            if groups < 0:
                raise ArgumentError(f"groups must be at least 0, got {groups}")
            per_group = -(-len(all_of_it) // groups) or 1
            lists = [all_of_it[i : i + per_group] for i in range(0, len(all_of_it), per_group)]
        else:
            lists = [list(group) for group in groups if group]
            grouped = [p for group in lists for p in group]
            if len(set(grouped)) < len(grouped) or not set(grouped) <= set(all_of_it):
                raise ArgumentError(
                    "groups must hold parameters of the optimizer that require gradients, each once"
                )
            left = set(all_of_it) - set(grouped)
            lists += [[p] for p in all_of_it if p in left]
        self._bundles, self._bundle_of = [], {}
        for group in lists:
            self._add_bundle(self.names[group[0]], group)

    @property
    def groups(self) -> list[list[str]]:
        """Names of gradients that are reduced together; empty without groups."""
        lists = [[self.names[p] for p in bundle.parameters] for bundle in self._bundles]
        return lists if len(lists) < len(self._bundle_of) else []

    def any_open(self) -> bool:
        """Returns True if a gradient is being reduced."""
        self._follow()
        return any(bundle.handles for bundle in self._bundles)

    def on_gradient(self, p: Tensor) -> None:
        """Handles a gradient that the backward pass has computed."""
        self._follow()
        if not self._reduces:
            return
        if self._left[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._left[p] -= 1
        if self._left[p] > 0:
            return
        bundle = self._bundle_of[p]
        bundle.missing.discard(p)
        if not bundle.missing:
            self._start(bundle)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. Gradients that are missing or incomplete are
        reduced as they are.

        Raises:
            HorovodInternalError: the first failure, after all reductions have ended.
        """
        self._follow()
        if (optimizer := self._optimizer()) is not None:
            self.adopt(optimizer)
        if not self._reduces:
            return self._prepare_alone()
        try:
            for bundle in self._bundles:
                if not bundle.handles:
                    self._start(bundle)
            results = iter(synchronize_all([h for one in self._bundles for h in one.handles]))
            with torch.no_grad():
                for finish in [f for one in self._bundles for f in one.finish]:
                    finish(next(results))
        finally:
            for bundle in self._bundles:
                forget(bundle.handles)  # if one was not started
                bundle.start_anew()
            self.set_passes(self._passes)
        self._stepped()

    def _stepped(self) -> None:
        if self.settings.process_set.process_set_id == 0:
            _autotune.step(self)

    def _prepare_alone(self) -> None:
        """Scales the gradients of a single rank; ranks outside of the process set are unchanged."""
        if not self._included or self.settings.op == Adasum:
            return
        for p in self._bundle_of:
            if p.grad is None:
                continue
            if self.settings.average_aggregated_gradients:
                p.grad /= self._passes

    # Starts the reduction of a group.
    def _start(self, bundle: GradientGroup) -> None:
        dense = []
        for p in bundle.parameters:
            if p.grad is None and not p.requires_grad:
                continue  # frozen after it was added
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            if p.grad.is_sparse and not self.settings.sparse_as_dense:
                self._start_sparse(bundle, p)
                continue
            dense.append(p)
        if dense:
            self._start_dense(bundle, dense)

    # Returns prescale and postscale factors.
    def _factors(self) -> tuple[float, float]:
        settings = self.settings
        prescale = 1 / settings.gradient_predivide_factor
        if settings.average_aggregated_gradients:
            prescale /= self._passes
        return prescale, settings.gradient_predivide_factor

    def _start_dense(self, bundle: GradientGroup, parameters: list[Tensor]) -> None:
        settings, (prescale, postscale) = self.settings, self._factors()
        # to_dense() of a dense gradient returns the gradient itself.
        pairs = [self._compressor.compress(_gradient(p).to_dense()) for p in parameters]
        bundle.handles.append(
            grouped_allreduce_async_(
                [small for small, _ in pairs],
                name=bundle.name,
                op=settings.op,
                prescale_factor=prescale,
                postscale_factor=postscale,
                process_set=settings.process_set,
            )
        )
        release_name(bundle.handles[-1])

        compressor = self._compressor  # a reference to self would keep the optimizer alive

        def finish(sums: list[Tensor]) -> None:
            for p, small, (_, ctx) in zip(parameters, sums, pairs, strict=True):
                put_back(p, compressor.decompress(small, ctx))

        bundle.finish.append(finish)

    def _start_sparse(self, bundle: GradientGroup, p: Tensor) -> None:
        settings, (prescale, postscale) = self.settings, self._factors()
        gradient = _gradient(p) if prescale == 1 else _gradient(p) * prescale
        name = f"{self.names[p]}.sparse"
        handle = start_sparse(gradient, name, settings.op, settings.process_set)
        bundle.handles.append(handle)
        release_name(handle)

        def finish(reduced: Tensor) -> None:
            p.grad = reduced if postscale == 1 else reduced * postscale

        bundle.finish.append(finish)


def put_back(p: Tensor, reduced: Tensor) -> None:
    """Writes a reduced dense gradient into a gradient that may be sparse."""
    if p.grad is not None and p.grad.is_sparse:
        p.grad = reduced.to_sparse(p.grad.sparse_dim())
    elif p.grad is not None and p.grad is not reduced:
        p.grad.copy_(reduced)


# Calls on_gradient() if the Gradients still exist.
def _tell(own: weakref.ref[Gradients], p: Tensor) -> None:
    if (gradients := own()) is not None:
        gradients.on_gradient(p)


def _gradient(p: Tensor) -> Tensor:
    """Returns the gradient of a parameter that has one."""
    assert p.grad is not None
    return p.grad
