"""The timed peers: each variant as a call of an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.host.operations import Operation
from benchmarks.net.bound import CODED
from benchmarks.net.groups import groups_of
from benchmarks.net.variants import OPENMPI, Variant

ACCEPTED_LOSS = 1.0  # limit of |result - exact|^2 / |exact|^2 for a codec's first call
SEED = 1


class Peer:
    """One rank's side of a variant. Call `prepare` before `call`, which may be repeated."""

    def __init__(self, variant: Variant, group: dist.ProcessGroup | None) -> None:
        self.variant, self.group = variant, group

    def serves(self, operation: str) -> bool:
        return True

    def prepare(self, name: str, tensors: Operation) -> None:
        # Other values overflow in repeated sums. Zeros take the same time.
        tensors.input.zero_()

    def call(self, name: str, tensors: Operation) -> Callable[[], object]:
        return lambda: tensors.torch(self.group)

    def is_right(self, name: str, tensors: Operation) -> bool:
        tensors.prepare()
        self.call(name, tensors)()
        return tensors.is_right()


class OpenMpi(Peer):
    def __init__(self, variant: Variant) -> None:
        from mpi4py import MPI

        super().__init__(variant, None)
        self._mpi = MPI

    def call(self, name: str, tensors: Operation) -> Callable[[], object]:
        return lambda: tensors.mpi(self._mpi.COMM_WORLD, self._mpi)


class Coded(Peer):
    """Operations with a codec. They average normally distributed numbers, so that repeated calls
    neither overflow nor vanish."""

    def serves(self, operation: str) -> bool:
        # An allgather encodes once, so it takes one codec, not a pair.
        return operation in CODED and not (operation == "all_gather" and ">" in self.variant.codec)

    def prepare(self, name: str, tensors: Operation) -> None:
        generator = torch.Generator().manual_seed(SEED + dist.get_rank())
        tensors.input.normal_(0, 1e-3, generator=generator)
        feeds_back = self.variant.feeds_back and name != "all_gather"
        self._residual = torch.zeros_like(tensors.input) if feeds_back else None

    def call(self, name: str, tensors: Operation) -> Callable[[], object]:
        import torch_ringdist as ringdist

        codec, group, average = self.variant.codec, self.group, dist.ReduceOp.AVG
        if name == "all_gather":
            return lambda: ringdist.all_gather_into_tensor(
                tensors.output, tensors.input, group, codec
            )
        if name == "reduce_scatter":
            return lambda: ringdist.reduce_scatter_tensor(
                tensors.output, tensors.input, average, group, codec, self._residual
            )
        return lambda: ringdist.all_reduce(tensors.input, average, group, codec, self._residual)

    def is_right(self, name: str, tensors: Operation) -> bool:
        self.prepare(name, tensors)
        exact = self._exact(name, tensors)
        self.call(name, tensors)()
        lost = (tensors.output.double() - exact).square().sum() / exact.square().sum()
        return float(lost) < ACCEPTED_LOSS

    def _exact(self, name: str, tensors: Operation) -> torch.Tensor:
        given = tensors.input.double()
        if name == "all_gather":
            all_given = torch.empty(len(tensors.output), dtype=torch.float64)
            dist.all_gather_into_tensor(all_given, given)
            return all_given
        dist.all_reduce(given)
        given /= dist.get_world_size()
        return given[tensors.part] if name == "reduce_scatter" else given


def peers_of(variants: Sequence[Variant]) -> list[Peer]:
    """Returns peers. All ranks make the same call, because groups are created in this order."""
    with_groups = [variant for variant in variants if variant.backend != OPENMPI]
    groups: dict[Any, dist.ProcessGroup] = groups_of(with_groups)
    found: list[Peer] = []
    for variant in variants:
        group = groups.get(variant.group)
        kind = Coded if variant.codec else Peer
        found.append(OpenMpi(variant) if variant.backend == OPENMPI else kind(variant, group))
    return found
