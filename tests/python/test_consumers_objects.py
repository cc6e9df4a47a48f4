"""Python objects between ranks. PyTorch pickles them and sends the bytes with other operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.rank import caught, new_group

SIZES = [2, 3]


def thing(rank: int) -> dict[str, Any]:
    """Returns an object with a pickle of 400 bytes to 480 KB, depending on the rank."""
    return {"rank": rank, "text": "ring" * 10**rank, "tensor": torch.arange(rank * 30_000)}


def same(actual: Any, rank: int) -> None:
    expected = thing(rank)
    assert actual["rank"] == rank and actual["text"] == expected["text"]
    assert torch.equal(actual["tensor"], expected["tensor"])


def _all_gather(group: dist.ProcessGroup, members: list[int]) -> None:
    everyone: list[Any] = [None] * len(members)
    dist.all_gather_object(everyone, thing(dist.get_rank()), group=group)
    for object_, rank in zip(everyone, members, strict=True):
        same(object_, rank)


def _gather(group: dist.ProcessGroup, members: list[int]) -> None:
    for root in members:
        at_root = dist.get_rank() == root
        everyone: list[Any] | None = [None] * len(members) if at_root else None
        dist.gather_object(thing(dist.get_rank()), everyone, dst=root, group=group)
        for object_, rank in zip(everyone or [], members if at_root else [], strict=True):
            same(object_, rank)


def _broadcast(group: dist.ProcessGroup, members: list[int]) -> None:
    for root in members:
        mine = [thing(root), root, None] if dist.get_rank() == root else [None] * 3
        dist.broadcast_object_list(mine, src=root, group=group)
        same(mine[0], root)
        assert mine[1:] == [root, None]


def _scatter(group: dist.ProcessGroup, members: list[int]) -> None:
    for root in members:
        given = [thing(rank) for rank in members] if dist.get_rank() == root else None
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, given, src=root, group=group)
        same(mine[0], dist.get_rank())


def _send(group: dist.ProcessGroup, members: list[int]) -> None:
    """Sends around the ring. The first rank sends first, the others send after they have
    received."""
    at = members.index(dist.get_rank())
    following, preceding = members[(at + 1) % len(members)], members[at - 1]
    got: list[Any] = [None, None]
    if at == 0:
        dist.send_object_list([thing(members[0]), "x"], dst=following, group=group)
    dist.recv_object_list(got, src=preceding, group=group)
    if at != 0:
        dist.send_object_list([thing(members[at]), "x"], dst=following, group=group)
    same(got[0], preceding)
    assert got[1] == "x"


CALLS: dict[str, Callable[[dist.ProcessGroup, list[int]], None]] = {
    "all_gather_object": _all_gather,
    "gather_object": _gather,
    "broadcast_object_list": _broadcast,
    "scatter_object_list": _scatter,
    "send_object_list": _send,
}


def _call(name: str) -> None:
    CALLS[name](dist.group.WORLD, list(range(dist.get_world_size())))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("size", SIZES)
def test_objects(pools, size: int, name: str):
    pools(size).run(_call, name)


def _in_a_subset() -> None:
    members = [0, 2]
    group = new_group(ranks=members)
    if dist.get_rank() in members:
        for call in CALLS.values():
            call(group, members)
        dist.destroy_process_group(group)
    dist.barrier()


def test_objects_in_a_group_of_some_ranks(pools):
    pools(3).run(_in_a_subset)


def _not_to_be_pickled() -> None:
    """Fails before anything is sent, so the group continues."""
    everyone: list[Any] = [None] * dist.get_world_size()
    error = caught(dist.all_gather_object, everyone, lambda: None)
    assert error is not None and "pickle" in error.text, error
    _call("all_gather_object")


def test_an_object_that_cannot_be_pickled(pools):
    pools(2).run(_not_to_be_pickled)
