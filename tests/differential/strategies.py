"""hypothesis strategies for sequences. In each list, shrinking prefers the first values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.differential import moving, reducing
from tests.differential.plan import WORLD, Plan, Region, Step
from tests.differential.values import DTYPES, LAYOUTS, REDUCTIONS

GROUPS = [(0, 1, 2), (0, 1), (1, 2), (0, 2), (0,), (1,), (2,)]
# The last shapes need more than one segment.
SHAPES = [(1,), (), (0,), (7,), (3, 5), (0, 4), (2, 3, 4), (1009,), (33, 77), (40_000,), (300_007,)]
ROWS = [1, 0, 2, 3, 17]
ROW_SHAPES = [(1,), (), (5,), (2, 3), (0,), (1500,)]
WITHOUT_ROWS = {"all_reduce", "reduce", "broadcast", "gather", "scatter", "send_recv"}
SPARSE = ["float32", "float64", "int64"]
LAGS = [0, 0, 1, 2, 5]
MANAGED = ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"]
# Gathering sparse tensors takes two rounds, so it cannot start together with others.
MIXED = sorted({*moving.OPERATIONS, *reducing.OPERATIONS} - {"all_reduce_sparse", "barrier"})


@dataclass(frozen=True)
class Place:
    """Device of the tensors, and the features that it supports."""

    device: str
    tags: bool  # sends and receives may have tags other than 0


@st.composite
def steps(draw: Any, ops: list[str], place: Place, group: tuple[int, ...] | None = None) -> Step:
    group = group or draw(st.sampled_from(GROUPS))
    op = draw(st.sampled_from([op for op in ops if op != "send_recv" or len(group) > 1]))
    if op == "barrier":
        return Step(op, group, lag=draw(st.sampled_from(LAGS)))
    named: dict[str, Any] = {}
    if op in reducing.OPERATIONS:
        dtypes = SPARSE if op == "all_reduce_sparse" else list(REDUCTIONS)
        named["dtype"] = draw(st.sampled_from(dtypes))
        reductions = REDUCTIONS[named["dtype"]]
        if op == "all_reduce_sparse":
            reductions = ["SUM", "AVG"]
        named["reduction"] = draw(st.sampled_from(reductions))
    else:
        named["dtype"] = draw(st.sampled_from(list(DTYPES)))
    if op in WITHOUT_ROWS:
        named["shape"] = draw(st.sampled_from(SHAPES))
    else:
        named["shape"] = draw(st.sampled_from(ROW_SHAPES))
        rows = st.lists(st.sampled_from(ROWS), min_size=WORLD**2, max_size=WORLD**2)
        named["rows"] = tuple(draw(rows))
    ranks = draw(st.permutations(range(len(group))))
    return Step(
        op,
        group,
        root=ranks[0],
        peer=ranks[-1],
        tag=draw(st.sampled_from([0, 1, 2**31 - 1] if place.tags else [0])),
        layout=draw(st.sampled_from(LAYOUTS)),
        # A receive on a device names its sender.
        variant=draw(
            st.just(False) if op == "send_recv" and place.device != "cpu" else st.booleans()
        ),
        lag=draw(st.sampled_from(LAGS)),
        **named,
    )


@st.composite
def regions(draw: Any, place: Place) -> Region:
    group = draw(st.sampled_from(GROUPS))
    style = draw(st.sampled_from(["region", "manager", "batch"] if len(group) > 1 else ["region"]))
    ops = {
        "region": MIXED,
        "manager": [draw(st.sampled_from(MANAGED))],
        "batch": ["send_recv"],
    }[style]
    inside = draw(st.lists(steps(ops, place, group), min_size=1, max_size=6))
    if style == "manager":
        # PyTorch uses the reduction of the first operation for all.
        inside = [step for step in inside if step.reduction == inside[0].reduction]
        if inside[0].op == "all_reduce":  # one operation and dtype, as with other backends
            inside = [step for step in inside if step.dtype == inside[0].dtype]
    if style == "batch":  # PyTorch has no receives from any source there
        inside = [replace(step, variant=False) for step in inside]
    return Region(style, tuple(inside), draw(st.sampled_from(LAGS)))


def plans(device: str = "cpu", tags: bool = True) -> st.SearchStrategy[Plan]:
    place = Place(device, tags)
    every = [*moving.OPERATIONS, *reducing.OPERATIONS]
    if device != "cpu":
        every.remove("all_reduce_sparse")
    one = steps(every, place)
    some = st.one_of(one, one, regions(place))
    return st.builds(
        Plan,
        steps=st.lists(some, min_size=1, max_size=12).map(tuple),
        seed=st.integers(0, 2**31 - 1),
        fresh_groups=st.sampled_from([False] * 7 + [True]),
        device=st.just(device),
    )
