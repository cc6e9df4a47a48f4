"""Ranks call different operations, or do not come, for every operation. test_mismatch.py tests
some in more detail, and the errors of a failed group."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.calls import OPERATIONS, Call
from support.rank import Raised, a_new_group_works, caught, new_group, new_store
from support.store import wait_for

SIZE, ODD = 3, 1
REDUCING = [name for name in OPERATIONS if "reduce" in name]
ROOTED = ["reduce", "broadcast", "gather", "scatter"]
WITH_DATA = [name for name in OPERATIONS if name != "barrier"]

# Differences of the odd rank, the operations that they apply to, and words that name both sides.
ASPECTS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "size": ({"count": 101}, WITH_DATA, ["100", "101"]),
    "size by far": ({"count": 50_000}, WITH_DATA, ["100", "50000"]),
    "dtype": ({"dtype": torch.float64}, WITH_DATA, ["float32", "float64"]),
    "root": ({"root": 1}, ROOTED, ["root 0", "root 1"]),
    "reduction": ({"op": dist.ReduceOp.AVG}, REDUCING, ["SUM", "AVG"]),
}


def _first_error(start: Any, group: Any) -> Raised | None:
    """Returns the error of the operation, or of the next calls if this rank's part was already
    done."""

    def call() -> None:
        start(group).wait()

    def barrier() -> None:
        dist.barrier(group=group)

    return caught(call) or caught(barrier) or caught(barrier)


def _disagree(name: str, other: dict[str, Any] | str) -> Raised | None:
    group = new_group(seconds=20)
    odd = dist.get_rank() == ODD
    if isinstance(other, str):  # another operation
        start = OPERATIONS[other if odd else name]
        error = _first_error(lambda group: start(Call(group)), group)
    else:
        settings = other if odd else {}
        error = _first_error(lambda group: OPERATIONS[name](Call(group, **settings)), group)
    _destroy_and_go_on([group])
    return error


def _destroy_and_go_on(groups: list[Any]) -> None:
    for group in groups:
        dist.destroy_process_group(group)
    a_new_group_works()


def _check(errors: list[Raised | None], words: list[str], limit: float = 10) -> None:
    for rank, error in enumerate(errors):
        where = f"rank {rank}: {error}"
        assert error is not None and "DistBackendError" in error.kinds, where
        for word in words:
            assert word in error.text, f"{word!r} is not in {where}"
        assert error.after < limit, where


@pytest.mark.parametrize(
    ("name", "aspect"),
    [(name, aspect) for aspect, (_, names, _) in ASPECTS.items() for name in names],
)
def test_ranks_differ(pools, name: str, aspect: str):
    other, _, words = ASPECTS[aspect]
    errors = pools(SIZE).run(_disagree, name, other)
    _check(errors, [*words, f"rank {ODD} "])


# An unmatched message is no mismatch: it looks as if the rank did not come.
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "send_recv"])
def test_one_rank_calls_another_operation(pools, name: str):
    other = "barrier" if name != "barrier" else "all_reduce"
    _check(pools(SIZE).run(_disagree, name, other), [f"rank {ODD} ", other])


def _one_does_not_come(seconds: float) -> dict[str, Raised | None]:
    """Calls all operations at once, each on its own group. The odd rank comes when the others have
    their errors."""
    groups, store = {name: new_group(seconds) for name in OPERATIONS}, new_store()
    for group in groups.values():
        dist.barrier(group=group)
    if dist.get_rank() == ODD:
        wait_for(store, *(f"errors of {rank}" for rank in range(SIZE) if rank != ODD))
        time.sleep(0.5)  # by then their timeouts have arrived
    works: dict[str, list[Any]] = {}

    def start(name: str) -> None:
        works[name] = [OPERATIONS[name](Call(groups[name]))]
        works[name].append(dist.barrier(groups[name], async_op=True))  # if its part is done

    # The late rank may get the error at once.
    errors = {name: caught(start, name) for name in groups}
    for name in groups:
        waits = (caught(work.wait) for work in works.get(name, []))
        errors[name] = errors[name] or next(filter(None, waits), None)
    store.set(f"errors of {dist.get_rank()}", "")
    _destroy_and_go_on(list(groups.values()))
    return errors


def test_a_rank_that_does_not_come_is_named(pools):
    found = pools(SIZE).run(_one_does_not_come, 4.0)
    for name in OPERATIONS:
        errors = [of_rank[name] for of_rank in found]
        _check(errors, [f"rank {ODD} ", "imed out"], limit=15)
