"""Transports of messages: shared memory inside a host, UCX between hosts, and forced ones."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import stat
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.rank import Raised, Ranks, caught, dump, init, new_group, same_bits

import torch_ringdist

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.net import hosts as net  # noqa: E402
from benchmarks.net.launch import torchrun  # noqa: E402

COUNTS = (1, 1000, 300_007, 4_000_037)


def _every_way(transport: str) -> str:
    """Runs collectives of several sizes in a new group. Returns its line in this process's dump."""
    group = new_group(pg_options=torch_ringdist.Options(transport=transport))
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in COUNTS:
        given = torch.arange(count, dtype=torch.int64)
        dist.all_reduce(tensor := given * (rank + 1), group=group)
        same_bits(tensor, given * (size * (size + 1) // 2), "all_reduce")
        parts = torch.arange(size * count, dtype=torch.int64) + rank
        dist.all_to_all_single(got := torch.empty_like(parts), parts, group=group)
        wanted = [given + rank * count + peer for peer in range(size)]
        same_bits(got, torch.cat(wanted), "all_to_all")
        dist.broadcast(tensor := given * (rank == 1), 1, group=group)
        same_bits(tensor, given, "broadcast")
        torch_ringdist.all_reduce(tensor := torch.full((count,), 2.0), codec="int8", group=group)
        assert abs(tensor - 2 * size).max() < 0.05
    name = group.group_name
    (line,) = [x for x in dump().splitlines()[1:] if f"group '{name}'" in x]
    dist.destroy_process_group(group)
    return line


@pytest.mark.parametrize(
    ("transport", "used"), [("", "shm"), ("shm", "shm"), ("tcp", "tcp"), ("ucx", "ucx")]
)
@pytest.mark.check
def test_every_transport_moves_everything(pools, transport: str, used: str):
    for rank, line in enumerate(pools(3).run(_every_way, transport)):
        others = " ".join(str(peer) for peer in range(3) if peer != rank)
        assert f"over {used} to rank {others}," in line


def _disagree() -> Raised:
    transport = ("shm", "ucx")[dist.get_rank()]
    group = new_group(pg_options=torch_ringdist.Options(transport=transport))
    return caught(dist.all_reduce, torch.ones(10), group=group)


def test_ranks_must_agree_on_it(fresh_pool):
    for error in fresh_pool(2).run(_disagree):
        assert 'transport="shm"' in error.text and 'transport="ucx"' in error.text


def _ucx_without_descriptors() -> Raised:
    """Lets rank 1 fail to open a transport that all ranks have found necessary."""
    dist.all_reduce(torch.ones(3))
    if dist.get_rank() == 1:
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, used + 10))
    group = new_group(pg_options=torch_ringdist.Options(transport="ucx"))
    return caught(dist.all_reduce, torch.ones(3), group=group)


@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="UCX must be opened by the second group")
def test_all_hear_of_a_rank_that_cannot_open_a_transport(fresh_pool):
    errors = fresh_pool(2).run(_ucx_without_descriptors)
    for error in errors:
        assert "transport ucx" in error.text and "descriptors" in error.text, error
    assert "rank 1" in errors[0].text, errors[0]


def _shut_down_connections() -> int:
    """Shuts down this process' TCP connections, except for PyTorch's store. Returns their
    number."""
    count = 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # not open, or not connected
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as connection:
                of_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
                if of_tcp and connection.getpeername()[1] != Ranks.launch.port:
                    connection.shutdown(socket.SHUT_RDWR)
                    count += 1
    return count


def _after_a_broken_connection() -> str:
    """Breaks a connection between processes that live on. Returns the text of the error."""
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    if dist.get_rank() == 1:
        assert _shut_down_connections() > 0
    error = caught(dist.all_reduce, torch.ones(3))
    # The other rank may have called shrink() before this one had an error of its own.
    assert error and ("broke" in error.text or "members were lost" in error.text), error
    torch_ringdist.shrink()
    assert dist.get_world_size() == 2
    dist.all_reduce(tensor := torch.ones(300_000))
    assert bool((tensor == 2).all())
    dist.destroy_process_group()
    init("again")
    dist.all_reduce(tensor := torch.ones(300_000))
    assert bool((tensor == 2).all())
    return error.text


def test_a_group_that_forms_anew_replaces_a_broken_connection(fresh_pool):
    pool = fresh_pool(2, environment={"RINGDIST_TRANSPORT": "ucx"})
    texts = pool.run(_after_a_broken_connection)
    assert any("broke" in text for text in texts), texts


def _over_reset_connections() -> list[int]:
    """Breaks all connections while operations run. Returns the ports at which this process
    listens, except for PyTorch's store."""
    torch.manual_seed(0)
    given = torch.randint(-1000, 1000, (3_000_000,))
    breaks = 0
    for _ in range(20):
        work = dist.all_reduce(tensor := given * (dist.get_rank() + 1), async_op=True)
        if dist.get_rank() == 1:
            breaks += _shut_down_connections() > 0
        work.wait()
        same_bits(tensor, given * 6, "all_reduce")
    assert breaks or dist.get_rank() != 1
    return _listening_ports()


def _listening_ports() -> list[int]:
    sockets = {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    }
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listens = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    ports = [int(row[1].split(":")[1], 16) for row in listens]
    return [port for port in ports if port != Ranks.launch.port]


def test_tcp_dials_again_and_has_one_port(fresh_pool):
    variables = {"RINGDIST_TRANSPORT": "tcp", "RINGDIST_PORT": "47310-47399"}
    ports = fresh_pool(3, environment=variables).run(_over_reset_connections)
    assert [len(of_rank) for of_rank in ports] == [1, 1, 1], ports
    assert len({port for (port,) in ports if 47310 <= port <= 47399}) == 3, ports


def test_a_port_that_is_taken_is_named(fresh_pool):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pool = fresh_pool(2, init=False, environment={"RINGDIST_PORT": str(port)})
        for error in pool.run(_cannot_listen):
            assert f"port {port} of 127.0.0.1" in error.text and "RINGDIST_PORT" in error.text


def _cannot_listen() -> Raised:
    return caught(lambda: (init(), dist.all_reduce(torch.ones(1))))


def _without_shared_memory() -> str:
    limit = 1 << 20  # bytes of a file, such as a segment
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    init()
    for _ in range(2):
        group = new_group()
        dist.all_reduce(tensor := torch.ones(1000), group=group)
        same_bits(tensor, torch.full((1000,), 2.0), "all_reduce")
    return dump()


def test_a_host_without_shared_memory_uses_ucx_and_says_so_once(fresh_pool):
    pool = fresh_pool(2, init=False)
    for rank, text in enumerate(pool.run(_without_shared_memory)):
        assert f"over ucx to rank {1 - rank}" in text, text
        assert pool.log(rank).count("doing without") == 1, pool.log(rank)


def _memory_of(kind: str) -> int:
    """Returns the resident bytes of this process of that kind."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{kind}:\s+(\d+) kB", status)[1]) << 10


def _held_by_links() -> int:
    for _ in range(20):
        dist.all_reduce(torch.ones(16 << 20))
    return _memory_of("RssShmem")


@pytest.mark.default_of("SHARE_TEST_TENSORS", reason="its tensors lie in shared memory, too")
def test_shared_memory_is_bounded(fresh_pool):
    for held in fresh_pool(2).run(_held_by_links):
        assert held < 40 << 20  # half of it is the peer's


def _busy_time() -> float:
    dist.barrier()
    time.sleep(0.3)  # the last messages
    begin = time.process_time()
    time.sleep(2)
    return time.process_time() - begin


def test_quiet_when_idle(fresh_pool):
    for seconds in fresh_pool(2).run(_busy_time):
        assert seconds < 0.02


def _segments() -> list[str]:
    """Returns the mappings of the ranks' segments here, after all ranks have written to all."""
    group = new_group(pg_options=torch_ringdist.Options(transport="shm"))
    dist.all_to_all_single(torch.empty(3), torch.ones(3), group=group)
    maps = Path("/proc/self/maps").read_text().splitlines()
    dist.destroy_process_group(group)
    return [line.split()[1] for line in maps if "memfd:ringdist (" in line]


def test_nobody_else_can_write_a_ranks_memory(pools):
    for access in pools(3).run(_segments):
        assert access.count("rw-s") == 1
        assert access.count("r--s") >= 2


SCRIPT = """
import os, torch, torch.distributed as dist, torch_ringdist
dist.init_process_group("ringdist", init_method=os.environ.get("METHOD"))
rank, size = dist.get_rank(), dist.get_world_size()
for count in (1, 1000, 300_007):
    given = torch.arange(count, dtype=torch.int64)
    dist.all_reduce(tensor := given * (rank + 1))
    assert torch.equal(tensor, given * (size * (size + 1) // 2)), "all_reduce"
    parts = torch.arange(size * count, dtype=torch.int64) + rank
    dist.all_to_all_single(got := torch.empty_like(parts), parts)
    wanted = torch.cat([given + rank * count + peer for peer in range(size)])
    assert torch.equal(got, wanted), "all_to_all"
    for codec, most in (("int8", 0.1), ("int4", 1.0)):  # one message to peers near and far
        torch_ringdist.all_reduce(tensor := torch.full((count,), 2.0), codec=codec)
        assert abs(tensor - 2 * size).max() < most, codec
for _ in range(100):
    dump = torch_ringdist.dump()
    if "the lane is busy" not in dump.splitlines()[0]:
        break
near, far = rank ^ 1, [r for r in range(size) if r // 2 != rank // 2]
between = os.environ["BETWEEN"]
expected = f"over shm to rank {near}, {between} to rank {far[0]} {far[1]}"
assert expected in dump, (expected, dump)
dist.destroy_process_group()
open(os.environ["DONE"] + str(rank), "w").close()
"""


@pytest.mark.hosts
@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="each has its place")
@pytest.mark.parametrize(("transport", "between"), [("", "ucx"), ("shm,tcp", "tcp")])
def test_two_hosts_of_two_ranks_use_both(tmp_path: Path, transport: str, between: str):
    script = tmp_path / "both.py"
    script.write_text(SCRIPT)
    variables = {**os.environ, "DONE": str(tmp_path / "done"), "OMP_NUM_THREADS": "1"}
    variables |= {"RINGDIST_TRANSPORT": transport, "BETWEEN": between}
    with net.Hosts(2) as hosts:
        assert torchrun(hosts, [str(script)], tmp_path, per_host=2, environment=variables) == 0
    assert len(list(tmp_path.glob("done*"))) == 4
