"""Operations that only move data, each as the call of one rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.differential import values
from tests.differential.call import Call, Here


def broadcast(here: Here) -> Call:
    rows = [here.moved(here.shape(), rank) for rank in range(here.size)]
    box = here.box(rows[here.me])
    return Call(
        lambda later: dist.broadcast(
            box.tensor, here.global_root, group=here.handle, async_op=later
        ),
        [("tensor", box, rows[here.step.root])],
    )


def all_gather(here: Here) -> Call:
    """Gathers uneven parts. With `variant` all outputs are one tensor, which keeps the last
    rank's part."""
    aliased = here.step.variant
    sizes = [here.row(0 if aliased else rank) for rank in range(here.size)]
    rows = [here.moved(here.shape(size), rank) for rank, size in enumerate(sizes)]
    given = here.box(rows[here.me])
    if aliased:
        outputs = [here.blank(here.shape(sizes[0]))] * here.size
        wanted = [rows[-1]] * here.size
    else:
        outputs, wanted = [here.blank(here.shape(size)) for size in sizes], rows
    return Call(
        lambda later: dist.all_gather(
            [box.tensor for box in outputs], given.tensor, group=here.handle, async_op=later
        ),
        [
            ("input", given, rows[here.me]),
            *((f"output {i}", outputs[i], part) for i, part in enumerate(wanted)),
        ],
    )


def all_gather_into_tensor(here: Here) -> Call:
    """Gathers into one tensor. With `variant` the input is this rank's part of the output."""
    rows = here.row(0)
    whole = here.moved(here.shape(rows * here.size))
    parts = [whole[rank * rows : (rank + 1) * rows] for rank in range(here.size)]
    output = here.blank(whole.shape)
    if here.step.variant:
        given = output.tensor[here.me * rows : (here.me + 1) * rows]
        values.bits(given).copy_(values.bits(parts[here.me]))
        expected = []
    else:
        box = here.box(parts[here.me])
        given, expected = box.tensor, [("input", box, parts[here.me])]
    return Call(
        lambda later: dist.all_gather_into_tensor(
            output.tensor, given, group=here.handle, async_op=later
        ),
        [("output", output, whole), *expected],
    )


def gather(here: Here) -> Call:
    rows = [here.moved(here.shape(), rank) for rank in range(here.size)]
    given = here.box(rows[here.me])
    at_root = here.me == here.step.root
    outputs = [here.blank(here.shape()) for _ in rows] if at_root else []
    return Call(
        lambda later: dist.gather(
            given.tensor,
            [box.tensor for box in outputs] or None,
            here.global_root,
            group=here.handle,
            async_op=later,
        ),
        [
            ("input", given, rows[here.me]),
            *((f"output {i}", box, rows[i]) for i, box in enumerate(outputs)),
        ],
    )


def scatter(here: Here) -> Call:
    rows = [here.moved(here.shape(), rank) for rank in range(here.size)]
    output = here.blank(here.shape())
    at_root = here.me == here.step.root
    given = [here.box(row) for row in rows] if at_root else []
    return Call(
        lambda later: dist.scatter(
            output.tensor,
            [box.tensor for box in given] or None,
            here.global_root,
            group=here.handle,
            async_op=later,
        ),
        [
            ("output", output, rows[here.me]),
            *((f"input {i}", box, rows[i]) for i, box in enumerate(given)),
        ],
    )


def _cat(parts: list[torch.Tensor]) -> torch.Tensor:
    """Does the same as torch.cat along dimension 0, also for dtypes that it does not support."""
    joined = torch.cat([values.bits(part) for part in parts])
    return joined.view(parts[0].dtype)


def all_to_all_single(here: Here) -> Call:
    """Exchanges uneven parts. With `variant` they are even, and there are no splits."""
    even, size = here.step.variant, here.size
    counts = [[1 if even else here.split(s, r) for r in range(size)] for s in range(size)]
    parts = [
        [here.moved(here.shape(n), s, r) for r, n in enumerate(row)] for s, row in enumerate(counts)
    ]
    whole, wanted = _cat(parts[here.me]), _cat([row[here.me] for row in parts])
    given, output = here.box(whole), here.blank(wanted.shape)
    splits = ([], []) if even else ([row[here.me] for row in counts], counts[here.me])
    return Call(
        lambda later: dist.all_to_all_single(
            output.tensor, given.tensor, *splits, group=here.handle, async_op=later
        ),
        [("output", output, wanted), ("input", given, whole)],
    )


def all_to_all(here: Here) -> Call:
    """Exchanges uneven parts."""
    size = here.size
    sent = [here.moved(here.shape(here.split(here.me, r)), here.me, r) for r in range(size)]
    wanted = [here.moved(here.shape(here.split(s, here.me)), s, here.me) for s in range(size)]
    given = [here.box(part) for part in sent]
    outputs = [here.blank(part.shape) for part in wanted]
    return Call(
        lambda later: dist.all_to_all(
            [box.tensor for box in outputs],
            [box.tensor for box in given],
            group=here.handle,
            async_op=later,
        ),
        [
            *((f"output {s}", outputs[s], part) for s, part in enumerate(wanted)),
            *((f"input {r}", given[r], part) for r, part in enumerate(sent)),
        ],
    )


def send_recv(here: Here) -> Call | None:
    """Sends from `root` to `peer`. With `variant` the receiver accepts any source."""
    step, content = here.step, here.moved(here.shape())
    any_source = step.variant
    # A receive from any source takes the first message of its tag, so it has its own tag.
    tag = 1000 + here.number if any_source else step.tag
    if here.me == step.root:
        given, to = here.box(content), step.group[step.peer]
        return Call(
            lambda later: (dist.isend if later else dist.send)(
                given.tensor, to, group=here.handle, tag=tag
            ),
            [("sent", given, content)],
            batched=lambda: dist.P2POp(dist.isend, given.tensor, to, here.handle, tag),
        )
    if here.me != step.peer:
        return None
    output, source = here.blank(here.shape()), None if any_source else here.global_root

    def start(later: bool) -> Any:
        if later:
            return dist.irecv(output.tensor, source, group=here.handle, tag=tag)
        reported = dist.recv(output.tensor, source, group=here.handle, tag=tag)
        assert reported == here.global_root, f"received from {reported}, not {here.global_root}"
        return None

    def check(work: Any) -> str:
        source = step.root if work is None else work._source_rank()
        return "" if source == step.root else f"source rank is {source}, not {step.root}"

    return Call(
        start,
        [("received", output, content)],
        check,
        lambda: dist.P2POp(dist.irecv, output.tensor, here.global_root, here.handle, tag),
    )


def barrier(here: Here) -> Call:
    return Call(lambda later: dist.barrier(here.handle, async_op=later))


OPERATIONS = {
    "broadcast": broadcast,
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "gather": gather,
    "scatter": scatter,
    "all_to_all_single": all_to_all_single,
    "all_to_all": all_to_all,
    "send_recv": send_recv,
    "barrier": barrier,
}
