"""Missing resources and wrong settings of a process are reported when its first group is
created."""

from __future__ import annotations

import os
import re
import resource
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, Ranks, caught, init, poll
from support.shared import read_in_place, reads_in_place, settle, shares_alone
from support.store import ForwardingStore

import torch_ringdist

OWN, MEANWHILE = 15, 9  # descriptors of a process with a group, and while it connects
counts_descriptors = pytest.mark.default_of(
    "RINGDIST_TRANSPORT", reason="UCX has descriptors of its own, and asks for them first"
)


def _first_op() -> None:
    init(timeout=timedelta(seconds=30))
    size = dist.get_world_size()
    dist.all_to_all_single(torch.empty(size), torch.ones(size))


def _descriptors() -> int:
    """Returns the number of open descriptors, including the one of the folder itself."""
    return len(os.listdir("/proc/self/fd"))


def _leave_descriptors(left: int) -> int:
    """Lowers the limit, which is one on numbers, and fills the free ones below it. Returns
    _descriptors()."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    numbers = [one for one in listed if os.path.exists(f"/proc/self/fd/{one}")]
    limit = len(numbers) + left
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    fill = [os.open(os.devnull, os.O_RDONLY) for number in numbers if number >= limit]
    return len(numbers) + len(fill) + 1


def _with_descriptors(left: int) -> Raised | None:
    _leave_descriptors(left)
    return caught(_first_op)


# The values go from no descriptor for the group to enough, with three that a client of the store
# may hold for a moment. UCX needs as many again, and aborts without.
@pytest.mark.parametrize(
    ("transport", "left", "enough"),
    [
        ("", 2, False),
        ("", 6, False),
        ("", 12, False),
        ("", 27, True),
        ("ucx", 18, False),
        ("ucx", 24, False),
        ("ucx", 40, True),
    ],
)
def test_who_lacks_descriptors_is_told_what_to_raise(
    fresh_pool, transport: str, left: int, enough: bool
):
    pool = fresh_pool(2, init=False, environment={"RINGDIST_TRANSPORT": transport})
    for error in pool.run(_with_descriptors, left):
        assert (error is None) == enough, error
        assert error is None or "raise 'ulimit -n'" in error.text, error


def _soon(count: int) -> int:
    """Waits for this number of open descriptors, and returns the last one. Connections may be
    closing."""
    poll(lambda: _descriptors() == count)
    return _descriptors()


def _descriptors_of_peers(peers: int) -> int:
    used = _leave_descriptors(OWN + 3 * peers + MEANWHILE)
    _first_op()  # every rank sends to every other
    dist.barrier()
    return _soon(used + OWN + 3 * peers) - used


@counts_descriptors
def test_a_peer_costs_three_descriptors(fresh_pool):
    for size in (2, 8):
        peers = size - 1
        found = fresh_pool(size, init=False).run(_descriptors_of_peers, peers)
        assert set(found) == {OWN + 3 * peers}, found


def _descriptors_of_exports() -> tuple[int, int]:
    """Returns the descriptors in addition to those without shared tensors: while one exists that
    every rank reads, and when none exists any more."""
    alone = _descriptors()
    init()
    peers, part = dist.get_world_size() - 1, 50_000
    shape = (dist.get_world_size(), part)
    out = torch.empty(shape)
    dist.all_to_all_single(out, torch.ones(shape))
    dist.barrier()
    used = _soon(alone + OWN + 3 * peers)
    dist.barrier()  # before any rank exports
    with torch_ringdist.shared_memory():
        shared = torch.ones(shape)
    for _ in range(20):  # the first ones export it and send copies
        before = read_in_place()
        dist.all_to_all_single(out, shared)
        time.sleep(0.005)
    assert read_in_place() - before == 4 * part * peers
    dist.barrier()
    exported = _descriptors() - used
    dist.barrier()
    del shared
    settle()
    return exported, _soon(used) - used


@reads_in_place
@shares_alone
def test_shared_tensors_cost_two_descriptors_of_a_peer(fresh_pool):
    for size in (2, 5):
        found = fresh_pool(size, init=False).run(_descriptors_of_exports)
        assert set(found) == {(1 + 2 * (size - 1), 0)}, found


@counts_descriptors
def test_the_number_that_a_group_needs_is_named(fresh_pool):
    for error in fresh_pool(8, init=False).run(_with_descriptors, 24):
        assert error and re.search(
            r"a process with 7 others of this host in its groups needs about 29 file descriptors, "
            r"of \d+ \d+ are in use: raise 'ulimit -n' to \d+ or more",
            error.text,
        ), error


class _SlowStore(ForwardingStore):
    """A store that answers only once the others have agreed on their hosts."""

    def check(self, keys: list[str]) -> bool:
        if keys[0].endswith("entry/0") and super().check(keys):
            agreed = keys[0].replace("entry/0", "host/0")
            assert poll(lambda: super(_SlowStore, self).check([agreed]))
            time.sleep(0.5)  # until they connect
        return super().check(keys)


def _one_lacks_descriptors(lacking: int, slow: bool) -> Raised | None:
    if Ranks.rank == lacking:
        _leave_descriptors(24)
        if slow:
            Ranks.store = _SlowStore(Ranks.store)
    return caught(_first_op)


# The others get the error while they look for the rank, not after their whole timeout.
@counts_descriptors
@pytest.mark.parametrize("slow", [False, True])
def test_of_the_one_that_lacks_descriptors_all_are_told(fresh_pool, slow: bool):
    for error in fresh_pool(8, init=False).run(_one_lacks_descriptors, 3, slow):
        assert error and "needs about 29 file descriptors" in error.text, error


@pytest.mark.parametrize(
    ("variable", "blamed"),
    [
        ("UCX_TLS", "UCX_TLS='bogus'"),
        ("UCX_NET_DEVICES", "UCX_NET_DEVICES='bogus'"),
        ("RINGDIST_SOCKET_IFNAME", 'RINGDIST_SOCKET_IFNAME="bogus"'),
    ],
)
def test_the_setting_that_does_not_fit_is_blamed(fresh_pool, variable: str, blamed: str):
    over_ucx = {"RINGDIST_TRANSPORT": "ucx"}
    pool = fresh_pool(2, init=False, environment={variable: "bogus", **over_ucx})
    others = {"UCX_TLS", "UCX_NET_DEVICES", "choose another with RINGDIST"} - {variable}
    for error in pool.run(_caught_first_op):
        assert error and blamed in error.text, error
        assert not any(other in error.text for other in others), error


def _caught_first_op() -> Raised | None:
    return caught(_first_op)


def _after_the_lack() -> list[Raised | None]:
    """Lets rank 1 have no descriptor left when the first operation connects it to rank 0."""
    init()
    assert poll(lambda: "waiting for its members" not in torch_ringdist.dump())
    if Ranks.rank == 1:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        _leave_descriptors(0)
        Ranks.store.set("no descriptor is left", "")
    Ranks.store.wait(["no descriptor is left"])  # else rank 0 is accepted before
    errors = [caught(dist.all_reduce, torch.ones(3))]
    if Ranks.rank == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for again in range(2):
        dist.destroy_process_group()
        init(f"again{again}")
        errors.append(caught(dist.all_reduce, torch.ones(3)))
    return errors


@counts_descriptors
def test_a_lack_that_passes_does_not_outlive_its_group(fresh_pool):
    for first, *later in fresh_pool(2, init=False).run(_after_the_lack):
        assert first and "broke: " in first.text, first
        assert later == [None, None], later


def _with_address_space(left: int) -> None:
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + left, used + left))
    _first_op()
    size = dist.get_world_size()
    got = torch.empty(size, 100_000)
    dist.all_to_all_single(got, torch.ones(size, 100_000))
    assert bool((got == 1).all())


# Batch systems set 'ulimit -v'. The own segment takes 92 MiB, each thread up to 72 MiB.
def test_a_peer_takes_little_address_space(fresh_pool):
    fresh_pool(12, init=False).run(_with_address_space, 800 << 20)
