"""Selects the operations and sizes of a layout to compare, with the algorithms that serve each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.host.operations import OPERATIONS
from benchmarks.net.layout import Layout
from torch_ringdist import _plan
from torch_ringdist._costs import Costs

# Operations on a whole tensor. In the others the tensor has a part per rank, and plans take the
# size of a part.
WHOLE = ("all_reduce", "broadcast", "reduce")


@dataclass(frozen=True)
class Cell:
    """One operation of one size.

    Attributes:
        operation: its name.
        bytes: size of a rank's longest tensor.
        choice: the algorithm that the planner chooses.
        walked: predicted nanoseconds of the choice on the simulated network. None if a simulation
            has too many steps.
        alike: the choice and equivalent algorithms, such as those by hosts on one host.
        algorithms: all algorithms that serve the operation.
    """

    operation: str
    bytes: int  # size of a rank's longest tensor
    choice: str
    walked: float | None
    alike: tuple[str, ...]
    algorithms: tuple[str, ...]


def elements_of(size: int, world: int) -> int:
    """Returns the number of float32 elements of a rank's longest tensor, a multiple of `world`."""
    return max(1, size // 4 // world) * world


def cells_of(
    layout: Layout, operations: Iterable[str], sizes: Iterable[int], costs: Costs
) -> list[Cell]:
    """Returns a cell for each size and each operation that has tensors, including those with only
    one algorithm."""
    sizes = list(sizes)
    sized = [name for name in operations if OPERATIONS[name].sized]
    return [_cell(layout, name, size, costs) for name in sized for size in sizes]


def _cell(layout: Layout, operation: str, size: int, costs: Costs) -> Cell:
    elements = elements_of(size, layout.world)
    hosts: list[list[int]] = [[] for _ in range(layout.hosts)]
    for rank, host in enumerate(layout.ranks_hosts()):
        hosts[host].append(rank)
    answer = _plan.Question(
        operation=operation,
        bytes=4 * (elements if operation in WHOLE else elements // layout.world),
        dtype="float32",
        reduce_op="SUM",
        root=0,
        hosts=hosts,
        algorithm="",
        codec="",
        layout_deterministic=False,
        costs=costs,
        costs_from="",
    ).ask(shown=-1)
    serve = {one["algorithm"]: one for one in answer["alternatives"] if not one["refusal"]}
    chosen = serve[answer["algorithm"]]
    walked = 1e9 * chosen["seconds"] if "seconds" in chosen else None
    comes_to = lambda one: (one["formula_seconds"], one.get("messages"))  # noqa: E731
    alike = [name for name, one in serve.items() if comes_to(one) == comes_to(chosen)]
    return Cell(operation, size, answer["algorithm"], walked, tuple(alike), tuple(serve))
