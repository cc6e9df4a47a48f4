"""send, recv and their async forms: tags, any source, empty and large tensors, many at once."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from support.rank import caught, new_group, same_bits
from support.reference import MOVED_ONLY, OPAQUE, REDUCIBLE, any_bits

SIZES = [2, 3, 4]
COUNTS = [0, 1, 1000, 500_009]


def _around_the_ring(seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    for name, dtype in {**REDUCIBLE, **MOVED_ONLY, **OPAQUE}.items():
        for count in COUNTS[:3] if name != "float32" else COUNTS:
            sending = dist.isend(any_bits(dtype, (count,), seed + rank), after)
            got = any_bits(dtype, (count,), seed)
            assert dist.recv(got, before) == before
            sending.wait()
            same_bits(got, any_bits(dtype, (count,), seed + before), f"{count} {name}")


@pytest.mark.parametrize("size", SIZES)
def test_every_dtype_around_the_ring(pools, size: int):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pools(size).run(_around_the_ring, seed)


def _tags() -> None:
    rank = dist.get_rank()
    tags = [0, 7, 2**31 - 1, 3]
    if rank == 0:
        for tag in tags:
            dist.send(torch.full((10,), float(tag % 1000)), 1, tag=tag)
    elif rank == 1:
        # The order differs from the order of sending.
        for tag in reversed(tags):
            got = torch.empty(10)
            dist.recv(got, 0, tag=tag)
            same_bits(got, torch.full((10,), float(tag % 1000)), f"tag {tag}")
    if rank < 2:
        # Messages of one tag arrive in the order of the calls.
        works = [
            dist.isend(torch.full((100,), float(i)), 1)
            if rank == 0
            else dist.irecv(torch.full((100,), -1.0), 0)
            for i in range(20)
        ]
        for i, work in enumerate(works):
            work.wait()
            same_bits(work.result()[0], torch.full((100,), float(i)), f"message {i}")
    dist.barrier()


@pytest.mark.check
def test_tags_and_order(pools):
    pools(2).run(_tags)


def _any_source() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank != 0:
        dist.send(torch.full((50,), float(rank)), 0, tag=4)
    else:
        sources = []
        for _ in range(size - 1):
            got = torch.empty(50)
            sources.append(dist.recv(got, tag=4))
            same_bits(got, torch.full((50,), float(sources[-1])), f"from {sources[-1]}")
        assert sorted(sources) == list(range(1, size)), sources
    dist.barrier()
    # A group in which ranks have other numbers.
    group = new_group(ranks=list(reversed(range(size))))
    if rank == size - 1:
        work = dist.irecv(got := torch.empty(3), group=group)
        work.wait()
        assert work._source_rank() == dist.get_group_rank(group, 0)
        same_bits(got, torch.full((3,), 8.0), "in a group")
    elif rank == 0:
        dist.send(torch.full((3,), 8.0), size - 1, group=group)
    dist.barrier(group)
    dist.destroy_process_group(group)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.check
def test_any_source(pools, size: int):
    pools(size).run(_any_source)


def _to_oneself() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in [*COUNTS, 3_000_000]:
        for receives_first in (False, True):
            got = torch.full((count,), -1.0)
            calls = [
                lambda count=count: dist.isend(torch.full((count,), 7.0 + rank), rank, tag=3),
                lambda got=got: dist.irecv(got, rank, tag=3),
            ]
            for work in [call() for call in (reversed(calls) if receives_first else calls)]:
                work.wait()
            same_bits(got, torch.full((count,), 7.0 + rank), f"{count}, {receives_first}")
    # Tags are separate and ordered. A receive from any source takes the first message sent.
    works = [dist.isend(torch.tensor([float(i)]), rank, tag=i % 2) for i in range(6)]
    for i in (1, 3, 0, 5, 2, 4):
        got = torch.empty(1)
        # torch's recv() rejects the own rank, its irecv() does not.
        work = dist.irecv(got, None if i == 3 else rank, tag=i % 2)
        work.wait()
        assert got.item() == i and work._source_rank() == rank
    for work in works:
        work.wait()
    # Exchanges with all others at once.
    ins = [torch.empty(200_000) for _ in range(size)]
    ops = [
        op
        for peer in range(size)
        for op in (
            dist.P2POp(dist.isend, torch.full((200_000,), 10.0 * rank + peer), peer),
            dist.P2POp(dist.irecv, ins[peer], peer),
        )
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for peer in range(size):
        same_bits(ins[peer], torch.full((200_000,), 10.0 * peer + rank), f"from {peer}")
    dist.barrier()


@pytest.mark.parametrize("size", [1, 3])
def test_sends_to_oneself(pools, size: int):
    pools(size).run(_to_oneself)


def _layouts() -> None:
    rank = dist.get_rank()
    given = torch.arange(12.0).reshape(3, 4)
    for what, view in {"columns": lambda t: t.t(), "every other": lambda t: t[:, ::2]}.items():
        if rank == 0:
            dist.send(view(given), 1)
        else:
            whole = torch.full((3, 4), -1.0)
            dist.recv(view(whole), 0)
            same_bits(view(whole), view(given), what)
            assert whole.eq(-1).sum() == 12 - view(given).numel(), "wrote beside the view"
    dist.barrier()


def test_strided_tensors(pools):
    pools(2).run(_layouts)


def _everybody_with_everybody(count: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    others = [r for r in range(size) if r != rank]
    got = {r: torch.empty(count) for r in others}
    ops = [dist.P2POp(dist.isend, torch.full((count,), float(rank)), r) for r in others]
    ops += [dist.P2POp(dist.irecv, got[r], r) for r in others]
    # Some ranks send first, some receive first.
    works = dist.batch_isend_irecv(ops if rank % 2 else ops[::-1])
    assert len(works) == 1, works
    works[0].wait()
    for r in others:
        same_bits(got[r], torch.full((count,), float(r)), f"from {r}")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", SIZES)
def test_batches_that_send_and_receive(pools, size: int, count: int):
    pools(size).run(_everybody_with_everybody, count)


def _beside_collectives() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    before = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    got = torch.empty(1000)
    receiving = dist.irecv(got, (rank - 1) % size, tag=1)
    dist.all_reduce(torch.ones(1000))
    sending = dist.isend(torch.full((1000,), float(rank)), (rank + 1) % size, tag=1)
    dist.barrier()
    receiving.wait()
    sending.wait()
    same_bits(got, torch.full((1000,), float((rank - 1) % size)), "beside collectives")
    after = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    assert after - before == 2, "a send or a receive was counted"


@pytest.mark.parametrize("size", SIZES)
def test_messages_are_not_ordered_with_collectives(pools, size: int):
    pools(size).run(_beside_collectives)


def _works() -> None:
    rank = dist.get_rank()
    tensor = torch.full((9,), float(rank))
    if rank == 0:
        work = dist.isend(tensor, 1)
        error = caught(work._source_rank)
        assert error and "source rank" in error.text, error
    else:
        work = dist.irecv(tensor, 0)
        assert work._source_rank() == 0
    assert work.get_future().wait()[0].data_ptr() == tensor.data_ptr()
    assert work.is_completed() and work.is_success()
    work.wait()
    same_bits(tensor, torch.zeros(9), "after the future")
    dist.barrier()


def test_works_and_futures(pools):
    pools(2).run(_works)
