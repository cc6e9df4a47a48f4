"""The gradients of an optimizer's parameters: each is reduced when the backward pass has it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_ringdist._errors import ArgumentError
from torch_ringdist.horovod._async import grouped_allreduce_async_, sparse_allreduce_async
from torch_ringdist.horovod._handles import synchronize
from torch_ringdist.horovod._reductions import Adasum, ReduceOp

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from torch_ringdist.horovod._compression import Compressor
    from torch_ringdist.horovod._sets import ProcessSet


@dataclass(frozen=True)
class GradientSettings:
    """As the arguments of DistributedOptimizer of those names."""

    compression: type[Compressor]
    backward_passes_per_step: int
    op: ReduceOp
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet
    average_aggregated_gradients: bool


class _Bundle:
    """Parameters whose gradients are reduced as one."""

    def __init__(self, name: str, parameters: list[Tensor]) -> None:
        self.name = name
        self.parameters = parameters
        self.missing = set(parameters)  # of this step
        self.under_way: Any = None  # what waits for it


class Gradients:
    """Hooks hold it by a weak reference: it ends with its optimizer."""

    def __init__(
        self, optimizer: Optimizer, names: dict[Tensor, str], settings: GradientSettings
    ) -> None:
        self.names = names
        self.settings = settings
        self._passes = settings.backward_passes_per_step
        self._parameters = [
            p for group in optimizer.param_groups for p in group["params"] if p.requires_grad
        ]
        self._left: dict[Tensor, int] = {}
        self._bundle_of: dict[Tensor, _Bundle] = {}
        self._bundles: list[_Bundle] = []
        self.set_groups(None)
        self.set_passes(self._passes)
        own = weakref.ref(self)
        # Steps of Adasum are made of the rank's own gradients.
        self._reduces = settings.op != Adasum and self._takes_part()
        if self._reduces:
            for p in self._parameters:
                p.register_post_accumulate_grad_hook(lambda p: _tell(own, p))

    def _takes_part(self) -> bool:
        process_set = self.settings.process_set
        return process_set.included() and process_set.size() > 1

    def set_passes(self, passes: int) -> None:
        self._passes = passes
        self._left = dict.fromkeys(self._parameters, passes)

    def set_groups(self, groups: int | Sequence[Sequence[Tensor]] | None) -> None:
        """Before the first backward pass.

        Raises:
            ValueError: a negative number; a parameter in two lists, or none of the optimizer's.
        """
        if not groups:
            lists = [[p] for p in self._parameters]
        elif isinstance(groups, int):
            if groups < 0:
                raise ArgumentError(f"groups must be at least 0, got {groups}")
            count = min(groups, len(self._parameters)) or 1
            per_group = -(-len(self._parameters) // count)
            lists = [
                self._parameters[i : i + per_group]
                for i in range(0, len(self._parameters), per_group)
            ]
        else:
            lists = [list(group) for group in groups]
            grouped = [p for group in lists for p in group]
            if len(set(grouped)) < len(grouped) or not set(grouped) <= set(self._parameters):
                raise ArgumentError(
                    "groups must hold parameters of the optimizer that require gradients, each once"
                )
            left = set(self._parameters) - set(grouped)
            lists += [[p] for p in self._parameters if p in left]
        self._bundles = [_Bundle(self.names[group[0]], group) for group in lists if group]
        self._bundle_of = {p: bundle for bundle in self._bundles for p in bundle.parameters}

    def any_open(self) -> bool:
        """A gradient is on its way."""
        return any(bundle.under_way for bundle in self._bundles)

    def on_gradient(self, p: Tensor) -> None:
        """The backward pass has added to it."""
        bundle = self._bundle_of.get(p)
        if bundle is None:
            return
        if self._left[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._left[p] -= 1
        if self._left[p] > 0:
            return
        bundle.missing.discard(p)
        if not bundle.missing:
            self._start(bundle)

    def synchronize(self) -> None:
        """All are reduced; those that were not computed, or not often enough, as they are."""
        if not self._reduces:
            return
        for bundle in self._bundles:
            if not bundle.under_way:
                self._start(bundle)
        try:
            for bundle in self._bundles:
                bundle.under_way, wait = None, bundle.under_way
                wait()
        finally:
            for bundle in self._bundles:
                bundle.under_way, bundle.missing = None, set(bundle.parameters)
            self.set_passes(self._passes)

    def _start(self, bundle: _Bundle) -> None:
        for p in bundle.parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            elif p.grad.is_sparse and self.settings.sparse_as_dense:
                p.grad = p.grad.to_dense()
        if any(p.grad.is_sparse for p in bundle.parameters):
            bundle.under_way = self._start_sparse(bundle)
        else:
            bundle.under_way = self._start_dense(bundle)

    def _factors(self) -> tuple[float, float]:
        settings = self.settings
        prescale = 1 / settings.gradient_predivide_factor
        if settings.average_aggregated_gradients:
            prescale /= self._passes
        return prescale, settings.gradient_predivide_factor

    def _start_dense(self, bundle: _Bundle) -> Any:
        settings, (prescale, postscale) = self.settings, self._factors()
        pairs = [settings.compression.compress(p.grad) for p in bundle.parameters]
        handle = grouped_allreduce_async_(
            [small for small, _ in pairs],
            name=bundle.name,
            op=settings.op,
            prescale_factor=prescale,
            postscale_factor=postscale,
            process_set=settings.process_set,
        )

        def wait() -> None:
            sums = synchronize(handle)
            with torch.no_grad():
                for p, small, (_, ctx) in zip(bundle.parameters, sums, pairs, strict=True):
                    reduced = settings.compression.decompress(small, ctx)
                    if reduced is not p.grad:
                        p.grad.copy_(reduced)

        return wait

    def _start_sparse(self, bundle: _Bundle) -> Any:
        settings, (prescale, postscale) = self.settings, self._factors()
        results = [
            sparse_allreduce_async(
                p.grad if prescale == 1 else p.grad * prescale,
                self.names[p],
                settings.op,
                settings.process_set,
            )
            for p in bundle.parameters
        ]

        def wait() -> None:
            for p, result in zip(bundle.parameters, results, strict=True):
                reduced = result()
                p.grad = reduced if postscale == 1 else reduced * postscale

        return wait


def _tell(own: weakref.ref[Gradients], p: Tensor) -> None:
    if (gradients := own()) is not None:
        gradients.on_gradient(p)
