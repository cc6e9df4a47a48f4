"""Every operation leaves one record named "ringdist:<operation>" in a profile."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions, ReduceScatterOptions


def _calls(rank: int, size: int) -> dict[str, list]:
    """Records by name, and the calls that leave one each."""
    t, wide = torch.ones(4), torch.ones(4 * size)
    ours = dist.group.WORLD._get_backend(torch.device("cpu"))
    parts = [torch.empty(4) for _ in range(size)]
    at_root = [torch.ones(4) for _ in range(size)] if rank == 0 else None
    peer = (rank + 1) % size
    return {
        "all_reduce": [
            lambda: dist.all_reduce(t, async_op=True),
            lambda: dist.all_reduce_coalesced([t, wide], async_op=True),
        ],
        "sparse_all_reduce": [lambda: dist.all_reduce(torch.eye(3).to_sparse(), async_op=True)],
        "reduce": [lambda: dist.reduce(t, 0, async_op=True)],
        "broadcast": [lambda: dist.broadcast(t, 0, async_op=True)],
        "all_gather": [
            lambda: dist.all_gather(parts, t, async_op=True),
            lambda: ours.allgather_coalesced([[p] for p in parts], [t], AllgatherOptions()),
        ],
        "all_gather_into_tensor": [
            lambda: dist.all_gather_into_tensor(wide, t, async_op=True),
            lambda: dist.group.WORLD.allgather_into_tensor_coalesced(
                [wide], [t], AllgatherOptions()
            ),
        ],
        "gather": [lambda: dist.gather(t, at_root, 0, async_op=True)],
        "scatter": [lambda: dist.scatter(t, at_root, 0, async_op=True)],
        "reduce_scatter": [lambda: dist.reduce_scatter(t, parts, async_op=True)],
        "reduce_scatter_tensor": [
            lambda: dist.reduce_scatter_tensor(t, wide, async_op=True),
            lambda: dist.group.WORLD.reduce_scatter_tensor_coalesced(
                [t], [wide], ReduceScatterOptions()
            ),
        ],
        "all_to_all": [
            lambda: dist.all_to_all([torch.empty(4) for _ in range(size)], parts, async_op=True),
            lambda: dist.all_to_all_single(torch.empty(4 * size), wide, async_op=True),
        ],
        "barrier": [lambda: dist.barrier(async_op=True)],
        "send": [lambda: dist.isend(t, peer)],
        "recv": [lambda: dist.irecv(torch.empty(4), (rank - 1) % size)],
    }


def _records() -> tuple[dict[str, int], dict[str, int]]:
    calls = _calls(dist.get_rank(), dist.get_world_size())
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        works = [call() for several in calls.values() for call in several]
        for work in works:
            work.wait()
    events = [e for e in profile.function_events if e.name.startswith("ringdist:")]
    assert all(e.is_async for e in events), events
    [send] = [e for e in events if e.name == "ringdist:send"]
    assert send.input_shapes == [[4]], send.input_shapes
    found = Counter(e.name.removeprefix("ringdist:") for e in events)
    return found, {name: len(several) for name, several in calls.items()}


@pytest.mark.parametrize("size", [2, 3])
def test_every_operation_leaves_a_record(pools, size: int):
    for found, wanted in pools(size).run(_records):
        assert found == wanted


def _any_source() -> list[str]:
    with torch.autograd.profiler.profile() as profile:
        if dist.get_rank() == 0:
            dist.recv(torch.empty(4))
        else:
            dist.send(torch.ones(4), 0)
    return [e.name for e in profile.function_events if e.name.startswith("ringdist:")]


def test_a_receive_from_anywhere_has_a_name_of_its_own(pools):
    assert pools(2).run(_any_source) == [["ringdist:recvAnySource"], ["ringdist:send"]]
