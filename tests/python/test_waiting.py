"""A rank that others wait for: warnings in the log, and the text of `dump`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.launched import preloaded
from support.pool import free_port
from support.rank import Ranks, dump, poll

from torch_ringdist import _dump, _rendezvous


def _log_of(rank: int) -> str:
    return Path(f"{Ranks.launch.log}.{rank}").read_text(errors="replace")


def _line_of(rank: int, words: str) -> str:
    """Returns the first line with these words that the rank logs."""
    assert poll(lambda: words in _log_of(rank), 30), f"no '{words}' in:\n{_log_of(rank)}"
    return next(line for line in _log_of(rank).splitlines() if words in line)


def _until_warned(call, words: str, ranks: tuple[int, ...]) -> str:
    """Runs `call` on all ranks, on rank 1 after these ranks have logged the words. Returns the
    first warning."""
    if Ranks.rank == 1:
        warnings = [_line_of(rank, words) for rank in ranks]
        call()
        return warnings[0]
    call()
    return ""


def _reduce_late() -> tuple[int, str]:
    for _ in range(2):
        dist.all_reduce(torch.ones(4))
    return os.getpid(), _until_warned(
        lambda: dist.all_reduce(torch.ones(4)), "all_reduce #3", (0, 2)
    )


def _receive_late() -> tuple[int, str]:
    def call():
        if Ranks.rank == 0:
            dist.recv(torch.ones(4), 1, tag=7)
        elif Ranks.rank == 1:
            dist.send(torch.ones(4), 0, tag=7)

    return os.getpid(), _until_warned(call, "recv from rank 1", (0,))


def test_a_warning_names_the_rank_that_has_not_called(fresh_pool):
    pool = fresh_pool(3, environment={"RINGDIST_WARN_AFTER": "2"})
    pid, warning = pool.run(_reduce_late)[1]
    assert "warn: rank 0 of group '0': all_reduce #3 (float32, 4 elements, SUM)" in warning
    assert f"for rank 1 (pid {pid} on host" in warning
    assert "which has not called it (its last: #2)" in warning
    assert "rank 2" not in warning
    pid, warning = pool.run(_receive_late)[1]
    assert "all_reduce #3" in pool.log(2)
    assert "recv from rank 1, tag 7 (float32, 4 elements) has been waiting" in pool.log(0)
    assert pool.log(0).count("all_reduce #3") == 1, pool.log(0)  # once per op


def test_no_warning_where_it_is_off(fresh_pool):
    pool = fresh_pool(2, environment={"RINGDIST_WARN_AFTER": "0", "RINGDIST_LOG_LEVEL": "error"})
    pool.run(_all_reduce)
    assert pool.log(0) == pool.log(1) == ""


def _all_reduce() -> None:
    dist.all_reduce(torch.ones(4))


def _verdicts() -> tuple[str, str]:
    """Returns the status of rank 0, which waits, and of rank 1, queried from outside by rank 1."""
    dist.all_reduce(torch.ones(4))
    pids: list = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
    if Ranks.rank == 0:
        dist.all_reduce(torch.ones(4))
        return "", ""

    def first(pid: int, words: str) -> str:
        lines = [""]

        def asked() -> bool:
            with contextlib.suppress(_dump.DumpError):  # it did not answer in time
                lines[0] = _dump.ask(pid)[0].splitlines()[0]
            return words in lines[0]

        poll(asked)
        return lines[0]

    other, own = first(pids[0], "not called"), first(os.getpid(), "waits in it")
    dist.all_reduce(torch.ones(4))
    return other, own


def _sleeps_of_the_lane() -> int:
    """Returns how often the lane's thread went to sleep."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "ringdist-lane":
            status = (task / "status").read_text()
            return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.M)[1])
    raise AssertionError("no lane")


LATE = 1.5  # seconds


def _wait_for_a_late_rank() -> float:
    """Returns how often the lane's thread went to sleep per second of the wait."""
    dist.barrier()
    before, begin = _sleeps_of_the_lane(), time.monotonic()
    if Ranks.rank == 1:
        time.sleep(LATE)
    dist.barrier()
    return (_sleeps_of_the_lane() - before) / max(time.monotonic() - begin, LATE)


def test_while_a_caller_waits_the_lane_seldom_looks(fresh_pool):
    # For many waiting ranks on one host, these would take much of a core. Before, there were 1000.
    assert fresh_pool(2).run(_wait_for_a_late_rank)[0] < 300


@pytest.mark.check
def test_dump_leads_with_who_is_waited_for_and_how_long(fresh_pool):
    pool = fresh_pool(2)  # its only group is this one
    other, own = pool.run(_verdicts)[1]
    assert other.startswith(f"ringdist: process {pool.processes[0].pid} on "), other
    assert "group '0': all_reduce #" in other and "has been waiting " in other
    assert f" s for rank 1 (pid {pool.processes[1].pid} on host" in other
    assert "which has not called it (its last: #" in other
    assert "all_reduce(float32, 4 elements, SUM), has not been called here; rank 0 (pid" in own
    assert "no operation in flight" in pool.run(dump)[0].splitlines()[0]


def test_dump_of_all_finds_the_ranks_by_itself(pools):
    pool = pools(2)
    pids = {process.pid for process in pool.processes}
    assert pids <= {pid for pid, _ in _dump.find_all()}
    states, _ = _dump.ask_all(timeout=30)
    for pid in pids:
        assert any(text.startswith(f"ringdist: process {pid} on ") for text in states), states


# One of three ranks, not all of which are launched. The group's timeout is long.
_LAUNCHED = """
import sys, torch, torch_ringdist
torch.distributed.init_process_group(sys.argv[1])
"""


@contextlib.contextmanager
def _launched(rank: int, backend: str, method: str = "env") -> Iterator[tuple[str, Iterator[str]]]:
    """Yields the address of its store, and the lines that the process writes."""
    port, code = free_port(), _LAUNCHED
    if method == "tcp":
        given = f", 'tcp://127.0.0.1:{port}', rank={rank}, world_size=3)"
        code = code.replace(")\n", given + "\n")
    names = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
    process = preloaded.ForkedProcess(
        [sys.executable, "-c", code, backend],
        env={**os.environ, **names, "MASTER_PORT": str(port), "RINGDIST_WARN_AFTER": "0.5"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{port}", map(bytes.decode, process.stdout)
    finally:
        process.kill()
        process.wait()


def _until(lines: Iterator[str], words: str) -> str:
    return next(line for line in lines if words in line)  # or the test times out


@pytest.mark.parametrize("method", ["env", "tcp"])
def test_a_rank_that_is_never_launched_is_missed(method: str):
    with _launched(0, "ringdist", method) as (address, lines):
        line = _until(lines, "warn")
        # Its own connection, which counts, may not be there yet.
        words = rf"rank 0 waits at {address} for [23] of 3 ranks, which have not connected"
        assert re.search(words, line), line


def test_a_rank_0_that_is_never_launched_is_missed():
    with _launched(1, "ringdist") as (address, lines):
        assert f"rank 1 waits at {address} for a store that does" in _until(lines, "warn")


def test_its_line_is_like_those_of_the_library(monkeypatch):
    place = f"{socket.gethostname()}:{os.getpid()}"
    assert _rendezvous._log_line("x") == f"[ringdist {place}] warn: x\n"
    monkeypatch.setenv("RINGDIST_LOG_FORMAT", "json")
    told = json.loads(_rendezvous._log_line("é"))
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told.pop("time"))
    host, pid = socket.gethostname(), os.getpid()
    assert told == {"host": host, "pid": pid, "level": "warn", "text": "é"}


def test_a_group_of_another_backend_is_not_watched(monkeypatch):
    """The end of a watched group is not delayed either. The ranks get torch's own error."""
    made = []
    monkeypatch.setattr(_rendezvous, "_timer", lambda url, _: made.append(url))

    def original(url: str, timeout: float) -> Iterator[str]:
        yield url
        raise RuntimeError("Unable to perform re-rendezvous")

    watched = _rendezvous._watched(original)

    def init_process_group(backend: str) -> Iterator[str]:
        return watched("env://", timeout=1)

    assert list(zip("a", init_process_group("gloo"), strict=False)) == [("a", "env://")]
    assert list(zip("a", watched("env://", timeout=1), strict=False)) == [("a", "env://")]
    assert made == []
    given = init_process_group("cpu:ringdist,cuda:nccl")
    assert next(given) == "env://" and made == ["env://"]
    with pytest.raises(RuntimeError, match="re-rendezvous"):
        next(given)


def test_connections_to_a_port_are_counted():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        assert _rendezvous.connected(address[1]) == 0
        with socket.create_connection(address), socket.create_connection(address):
            assert _rendezvous.connected(address[1]) == 2
