"""Members of a group are killed or stopped. The others shrink it and continue."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.job_key import key_variables, needs_tls
from support.pool import Pool
from support.rank import Raised, Ranks, caught, new_group, oracle, same_bits
from support.ready import mark_ready, wait_until_ready
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

import torch_ringdist
from torch_ringdist._shrink import Lost, ShrinkReport

SIZE = 4
PEER_TIMEOUT = 5.0
PREPARED = 1  # operations, by _prepare


def _sum_is_right(group: dist.ProcessGroup | None = None) -> None:
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    base = torch.arange(20_001)
    tensor = base + rank
    dist.all_reduce(tensor, group=group)
    same_bits(tensor, base * size + size * (size - 1) // 2, f"the sum of {size} ranks")


def _prepare() -> None:
    _sum_is_right()


def _prepared(pool: Pool) -> Pool:
    pool.run(_prepare)
    return pool


def _until_an_error(group: dist.ProcessGroup | None = None) -> tuple[Raised, int]:
    """Sums until one fails. Returns the error and the number of sums that did not fail."""
    tensor, done = torch.ones(1 << 18), 0
    while not (error := caught(dist.all_reduce, tensor.fill_(1), group=group)):
        done += 1
    return error, done


def _everything_works() -> None:
    """Checks the default group, and groups made of its ranks."""
    _sum_is_right()
    dist.barrier()
    rank, some = dist.get_rank(), sorted({0, dist.get_world_size() - 1})
    group = new_group(ranks=some)
    if rank in some:
        _sum_is_right(group)
    objects = ["of rank 0", {"step": 7}] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects, src=0)
    assert objects == ["of rank 0", {"step": 7}], objects
    dist.barrier()  # a rank that leaves next does so when all have its data


def _shrink() -> ShrinkReport:
    """Shrinks the default group and returns the report."""
    before = dist.get_rank()
    group, report = torch_ringdist.shrink()
    assert group is dist.group.WORLD
    assert dist.get_process_group_ranks(group) == list(range(len(report.stayed)))
    assert dist.get_world_size() == len(report.stayed)
    assert report.stayed[dist.get_rank()] == before, report
    return report


Loss = tuple[
    Raised, int, ShrinkReport
]  # the error, the number of sums before it, the shrink report


def _go_on(left: int) -> list[Loss]:
    """Sums, and shrinks after each loss, until that many ranks are left. Then checks everything."""
    losses = []
    while dist.get_world_size() > left:
        error, done = _until_an_error()
        losses.append((error, done, _shrink()))
    _everything_works()
    return losses


def _leave() -> None:
    dist.destroy_process_group()
    assert not dist.is_initialized()


def _start(pool: Pool, ranks: set[int], function: Callable[..., Any], *args: Any) -> None:
    """Does the same as pool.start, on these ranks."""
    for rank in ranks:
        pool.pipes[rank].send((function.__module__, function.__qualname__, args))


def _run(pool: Pool, ranks: set[int], function: Callable[..., Any], *args: Any) -> dict[int, Any]:
    """Does the same as pool.run, on these ranks."""
    _start(pool, ranks, function, *args)
    return pool.collect(without=tuple(set(range(pool.size)) - ranks))


def _after_kills(pool: Pool, victims: tuple[int, ...], pause: float = 0.0) -> dict[int, list[Loss]]:
    """Kills the victims. Returns the losses of the others, which continue and leave in good
    order."""
    pids = {rank: pool.processes[rank].pid for rank in victims}
    pool.start(_go_on, pool.size - len(victims))
    time.sleep(0.7)
    for victim in victims:
        pool.kill(victim)
        time.sleep(pause)
    losses = pool.collect(without=victims)
    _run(pool, set(losses), _leave)
    for rank, its in losses.items():
        print(f"rank {rank}:", *(f"\n  {error}\n  {report}" for error, _, report in its))
        lost = [one for _, _, report in its for one in report.lost]
        assert len(lost) == len(victims)
        for pid in pids.values():
            assert any(f"pid {pid} " in f"{one.where} " for one in lost), (pid, lost)
    assert len({its[-1][-1].generation for its in losses.values()}) == 1
    return losses


@pytest.mark.parametrize(
    ("victim", "has_store", "has_key"),
    [
        (2, False, False),
        (0, False, False),
        (0, True, False),
        pytest.param(0, True, True, marks=needs_tls),
    ],
)
def test_one_is_killed(fresh_pool, tmp_path: Path, victim: int, has_store: bool, has_key: bool):
    key = key_variables(tmp_path, has_key)
    pool = _prepared(fresh_pool(SIZE, rank0_hosts_store=has_store, environment=key))
    losses = _after_kills(pool, (victim,))
    reports, done, names_victim = [], [], []
    for rank, its in losses.items():
        [(error, sums, report)] = its
        assert "DistNetworkError" in error.kinds, f"rank {rank}: {error}"
        # Another survivor may have called shrink() before this one had an error of its own.
        names_victim.append(f"rank {victim} (" in error.text)
        assert names_victim[-1] or "members were lost" in error.text, f"rank {rank}: {error}"
        reports.append(report)
        done.append(sums)
    assert any(names_victim), losses
    assert all(report == reports[0] for report in reports)
    [lost] = reports[0].lost
    assert lost == Lost(victim, victim, "died", lost.where)
    assert reports[0].generation == 1
    assert reports[0].stayed == tuple(losses)
    assert bool(reports[0].store) == has_store
    assert reports[0].store.startswith("ringdist://") == has_key
    assert reports[0].first_unfinished == PREPARED + min(done) + 1, (reports[0], done)


@pytest.mark.check
def test_one_of_two_is_killed(fresh_pool):
    losses = _after_kills(_prepared(fresh_pool(2)), (0,))
    [(_, _, report)] = losses[1]
    assert report.stayed == (1,)


@pytest.mark.parametrize("pause", [0.1, 2.0])
@pytest.mark.parametrize("victims", [(1, 3), (0, 1)])
def test_two_are_killed_one_after_the_other(fresh_pool, victims: tuple[int, int], pause: float):
    # Both victims of (0, 1) hold the store when they die.
    pool = _prepared(fresh_pool(SIZE, rank0_hosts_store=0 in victims))
    _after_kills(pool, victims, pause)


def test_all_but_one_are_killed(fresh_pool):
    _after_kills(_prepared(fresh_pool(SIZE)), (0, 1, 3))


SOME = [1, 2, 3]


def _shrink_a_subgroup() -> ShrinkReport | None:
    world, rank = dist.group.WORLD, dist.get_rank()
    group = new_group(ranks=SOME)
    if rank not in SOME:
        mark_ready()
        return None
    _sum_is_right(group)
    mark_ready()
    _until_an_error(group)
    new, report = torch_ringdist.shrink(group)
    assert dist.group.WORLD is world
    assert (dist.get_rank(), dist.get_world_size()) == (rank, SIZE)
    assert dist.get_process_group_ranks(new) == [1, 3]
    assert dist.get_rank(new) == [1, 3].index(rank)
    _sum_is_right(new)
    objects = ["of rank 3"] if rank == 3 else [None]
    dist.broadcast_object_list(objects, src=3, group=new)
    assert objects == ["of rank 3"], objects
    error = caught(torch_ringdist.shrink, group)
    assert error is not None and "the group given has been destroyed" in error.text, error
    dist.destroy_process_group(new)
    return report


def test_a_group_of_some_ranks(fresh_pool):
    pool = _prepared(fresh_pool(SIZE))
    pool.start(_shrink_a_subgroup)
    wait_until_ready(pool)
    pool.kill(2)
    reports = pool.collect(without=(2,))
    assert reports.pop(0) is None
    assert reports[1] == reports[3]
    [lost] = reports[1].lost
    assert lost == Lost(1, 2, "died", lost.where)
    assert reports[1].stayed == (1, 3)


def _with_other_groups() -> None:
    gloo, other = oracle(), new_group()
    _sum_is_right(gloo)
    _sum_is_right(other)
    # In flight on some ranks only, and without end.
    work = dist.irecv(torch.ones(3), src=(dist.get_rank() + 1) % dist.get_world_size(), group=other)
    mark_ready()
    _until_an_error()
    _shrink()
    assert caught(work.wait) is not None
    for group in (gloo, other):
        assert caught(dist.all_reduce, torch.ones(3), group=group) is not None
        with pytest.raises(ValueError):
            dist.destroy_process_group(group)
    _everything_works()
    _leave()


def test_other_groups_go_with_the_default_group(fresh_pool):
    pool = _prepared(fresh_pool(3))
    pool.start(_with_other_groups)
    wait_until_ready(pool)
    pool.kill(1)
    pool.collect(without=(1,))


def _no_quorum() -> list[Raised | None]:
    if dist.get_rank() != 0:
        time.sleep(600)
    _until_an_error()
    world, errors = dist.group.WORLD, []
    for _ in range(2):
        errors.append(caught(torch_ringdist.shrink, timeout=timedelta(seconds=4)))
        assert dist.group.WORLD is world and dist.get_world_size() == 3
    return errors


def test_too_few_are_left(fresh_pool):
    pool = _prepared(fresh_pool(3, environment={"RINGDIST_PEER_TIMEOUT": str(PEER_TIMEOUT)}))
    pool.start(_no_quorum)
    time.sleep(0.7)
    for rank in (1, 2):
        pool.kill(rank, signal.SIGSTOP)
    for error in pool.collect(without=(1, 2))[0]:
        assert error is not None and "no quorum: 1 of 3 voters, 2 needed" in error.text, error


def _after_a_disagreement() -> ShrinkReport:
    assert caught(dist.all_reduce, torch.ones(3 + dist.get_rank())) is not None
    report = _shrink()
    _everything_works()
    _leave()
    return report


def test_nobody_is_lost(fresh_pool):
    for report in fresh_pool(2).run(_after_a_disagreement):
        assert report == ShrinkReport(1, (), (0, 1), first_unfinished=1)


def _fail_after_the_agreement() -> Raised | None:
    assert caught(dist.all_reduce, torch.ones(3 + dist.get_rank())) is not None
    if dist.get_rank() == 1:
        _shrink()
        return caught(dist.all_reduce, torch.ones(3))
    world, names = dist.group.WORLD, dict(c10d._world.pg_names)
    helper, c10d._new_process_group_helper = c10d._new_process_group_helper, None
    error = caught(torch_ringdist.shrink)
    c10d._new_process_group_helper = helper
    assert error is not None and error.kinds[0] == "TypeError", error
    assert dist.group.WORLD is world and c10d._world.pg_names == names
    return None


def test_the_others_are_told_of_a_failure_after_the_agreement(fresh_pool):
    _, error = fresh_pool(2).run(_fail_after_the_agreement)
    assert error is not None and "rank 0 aborted the group" in error.text, error


STEPS, VICTIM = 12, 1


def _as_rank_0(module: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> int:
    """Makes all ranks continue from the state of rank 0. Returns the step."""
    state = [module.state_dict(), optimizer.state_dict(), step]
    dist.broadcast_object_list(state, src=0)
    module.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    return state[2]


def _train() -> list[torch.Tensor]:
    """Runs the loop of docs/how-to/shrink-and-join.md."""
    torch.manual_seed(dist.get_rank())  # DDP synchronizes models, but not optimizers
    module = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 2))
    optimizer = torch.optim.Adam(module.parameters())
    model, step = DistributedDataParallel(module), 0
    while step < STEPS:
        try:
            if model is None:
                step = _as_rank_0(module, optimizer, step)
                model = DistributedDataParallel(module)
            if (step, dist.get_rank(), dist.get_world_size()) == (5, VICTIM, 3):
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            model(torch.randn(8, 40)).square().mean().backward()
            optimizer.step()
            step += 1
        except dist.DistNetworkError:
            model = None
            _shrink()
    assert dist.get_world_size() == 2
    _leave()
    return [value.detach() for value in module.parameters()]


def test_training_goes_on(fresh_pool):
    pool = _prepared(fresh_pool(3))
    pool.start(_train)
    first, last = pool.collect(without=(VICTIM,)).values()
    for a, b in zip(first, last, strict=True):
        same_bits(a, b, "a parameter")


def _bad_arguments() -> None:
    some = new_group(ranks=[0])
    gone = new_group()
    dist.destroy_process_group(gone)
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"group": "x"}, "TypeError", "group must be a ProcessGroup or None, got str"),
        ({"group": oracle()}, "ArgumentError", "gloo serves its CPU tensors"),
        ({"group": gone}, "ArgumentError", "the group given has been destroyed"),
        ({"timeout": 5}, "TypeError", "timeout must be a datetime.timedelta or None, got 5 of"),
        ({"timeout": timedelta(0)}, "ArgumentError", "above 0, or None, got datetime.timedelta(0)"),
        ({"timeout": timedelta(seconds=-1)}, "ArgumentError", "above 0, or None, got"),
    ]
    if dist.get_rank() != 0:
        cases.append(({"group": some}, "ArgumentError", "this rank is not a member of the group"))
    for given, kind, text in cases:
        error = caught(torch_ringdist.shrink, **given)
        assert error is not None and error.kinds[0] == kind, (given, error)
        assert error.text.startswith("ringdist: shrink: ") and text in error.text, error
    _sum_is_right()
    dist.destroy_process_group(some)


def test_bad_arguments(pools):
    pools(2).run(_bad_arguments)


def _of_a_mixed_group() -> Raised | None:
    return caught(torch_ringdist.shrink, new_group_of_two_backends())


def new_group_of_two_backends() -> dist.ProcessGroup:
    return dist.new_group(backend="cpu:ringdist,cuda:gloo", timeout=Ranks.launch.timeout)


def test_a_group_of_two_backends(fresh_pool):
    for error in fresh_pool(2).run(_of_a_mixed_group):
        assert error is not None and error.kinds[0] == "ArgumentError", error
        assert "of the backend ringdist alone; gloo serves its cuda tensors" in error.text, error


def test_there_is_no_default_group():
    with pytest.raises(torch_ringdist.ArgumentError, match="there is no default group yet"):
        torch_ringdist.shrink()
