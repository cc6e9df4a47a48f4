"""Operations that reduce, each as the call of one rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.differential import values
from tests.differential.call import Call, Here
from tests.differential.plan import WORLD
from tests.differential.values import Box


def all_reduce(here: Here) -> Call:
    rows = here.given(here.shape())
    box = here.box(rows[here.me])
    return Call(
        lambda later: dist.all_reduce(box.tensor, here.op, group=here.handle, async_op=later),
        [("tensor", box, here.reduced(rows))],
    )


def all_reduce_coalesced(here: Here) -> Call:
    lists = [here.given(here.shape(here.row(i)), i) for i in range(WORLD)]
    boxes = [here.box(rows[here.me]) for rows in lists]
    return Call(
        lambda later: dist.all_reduce_coalesced(
            [box.tensor for box in boxes], here.op, group=here.handle, async_op=later
        ),
        [(f"tensor {i}", boxes[i], here.reduced(rows)) for i, rows in enumerate(lists)],
    )


def all_reduce_sparse(here: Here) -> Call:
    dense = [torch.zeros(6, 4, dtype=values.DTYPES[here.step.dtype]) for _ in range(here.size)]
    for rank, rows in enumerate(here.given((6, 4))):
        count = here.row(rank)
        dense[rank][:count] = rows[:count]
    tensor = dense[here.me].to_sparse().to(here.device)
    box = Box(tensor, tensor)

    def check(_: Any) -> str:
        same = torch.equal(box.tensor.to_dense().cpu(), here.reduced(dense))
        return "" if same and box.tensor.is_coalesced() else f"became {box.tensor}"

    return Call(
        lambda later: dist.all_reduce(box.tensor, here.op, group=here.handle, async_op=later),
        check=check,
    )


def reduce(here: Here) -> Call:
    rows = here.given(here.shape())
    box = here.box(rows[here.me])
    at_root = here.me == here.step.root
    return Call(
        lambda later: dist.reduce(
            box.tensor, here.global_root, here.op, group=here.handle, async_op=later
        ),
        [("tensor", box, here.reduced(rows) if at_root else rows[here.me])],
    )


def reduce_scatter(here: Here) -> Call:
    """Reduces and scatters uneven parts."""
    lists = [here.given(here.shape(here.row(part)), part) for part in range(here.size)]
    given = [here.box(rows[here.me]) for rows in lists]
    output = here.blank(here.shape(here.row(here.me)))
    return Call(
        lambda later: dist.reduce_scatter(
            output.tensor,
            [box.tensor for box in given],
            here.op,
            group=here.handle,
            async_op=later,
        ),
        [
            ("output", output, here.reduced(lists[here.me])),
            *((f"input {i}", given[i], rows[here.me]) for i, rows in enumerate(lists)),
        ],
    )


def reduce_scatter_tensor(here: Here) -> Call:
    rows = here.row(0)
    whole = here.given(here.shape(rows * here.size))
    given = here.box(whole[here.me])
    output = here.blank(here.shape(rows))
    mine = slice(here.me * rows, (here.me + 1) * rows)
    return Call(
        lambda later: dist.reduce_scatter_tensor(
            output.tensor, given.tensor, here.op, group=here.handle, async_op=later
        ),
        [
            ("output", output, here.reduced([row[mine] for row in whole])),
            ("input", given, whole[here.me]),
        ],
    )


OPERATIONS = {
    "all_reduce": all_reduce,
    "all_reduce_coalesced": all_reduce_coalesced,
    "all_reduce_sparse": all_reduce_sparse,
    "reduce": reduce,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_tensor": reduce_scatter_tensor,
}
