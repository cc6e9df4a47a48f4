"""What is compared: operations and sizes of a layout, with the algorithms that may serve each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.host.operations import OPERATIONS
from benchmarks.net.layout import Layout
from torch_ringdist import _plan
from torch_ringdist._costs import Costs

# The tensor is cut over ranks in the others, and a plan is asked for by the part.
WHOLE = ("all_reduce", "broadcast", "reduce")


@dataclass(frozen=True)
class Cell:
    """One operation of one size; `algorithms` serve it, `choice` is the planner's, which takes so
    many nanoseconds on the simulated network (None: too many steps to walk). `alike`: itself, and
    others that come to the same, as do those by hosts on one host."""

    operation: str
    bytes: int  # of a rank's longest tensor
    choice: str
    walked: float | None
    alike: tuple[str, ...]
    algorithms: tuple[str, ...]


def elements_of(size: int, world: int) -> int:
    """float32 of a rank's longest tensor: as many for each rank."""
    return max(1, size // 4 // world) * world


def cells_of(
    layout: Layout, operations: Iterable[str], sizes: Iterable[int], costs: Costs
) -> list[Cell]:
    """Of each operation with tensors and each size; by one algorithm where that is all there is."""
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
