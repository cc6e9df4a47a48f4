"""hvd.start_timeline(): activities of all ranks in one file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.horovod import initialized
from support.launched import preloaded, ringdistrun
from test_shrink_hosts import Network

import torch_ringdist.horovod as hvd

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def _rows(events: list[dict[str, Any]], rank: int) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of a rank by name: spans and marks, in order."""
    names = {
        event["tid"]: event["args"]["name"]
        for event in events
        if event["pid"] == rank and event["name"] == "thread_name"
    }
    out: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for event in sorted((e for e in events if e["ph"] in "Xi"), key=lambda e: e["ts"]):
        if event["pid"] == rank:
            out[names[event["tid"]]].append(event)
    return out


def _work(steps: int = 3) -> None:
    for _ in range(steps):
        hvd.allreduce(torch.ones(10), name="x")
    hvd.allgather(torch.ones(2, 3))
    hvd.barrier()


def _timeline(path: str, marks: bool) -> list[str]:
    with initialized():
        hvd.start_timeline(path, mark_cycles=marks)
        _work()
        said = []
        if hvd.rank() == 0:
            with pytest.warns(UserWarning) as warned:
                hvd.start_timeline("/no/x")
                hvd.start_timeline(os.path.dirname(path) + "/" + 250 * "x")  # too long with rank-0
            said = [str(one.message) for one in warned]
        hvd.barrier()
        hvd.stop_timeline()
        if hvd.rank() == 0:
            assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
        hvd.stop_timeline()  # no effect
        hvd.allreduce(torch.ones(10), name="after")
    return said


@pytest.mark.parametrize("marks", [False, True])
def test_it_has_rows_of_all_ranks(pools, tmp_path: Path, marks: bool):
    path = tmp_path / "timeline.json"
    said = pools(3).run(_timeline, str(path), marks)[0]
    assert len(said) == 2, said
    assert "File name too long" in said[1]
    assert "file_path must be a file in a folder" in said[0] and "/no/x" in said[0]
    events = json.loads(path.read_text())["traceEvents"]
    for rank in range(3):
        rows = _rows(events, rank)
        for row, what, times in (
            ("allreduce.x", "ALLREDUCE", 3),
            ("allgather.noname", "ALLGATHER", 1),
            ("barrier.noname", "BARRIER", 1),
        ):
            whats = [event["name"] for event in rows[row]]
            assert whats[: 2 * times] == [f"NEGOTIATE_{what}", what] * times, (row, whats)
            assert rows[row][0]["args"]["detail"].startswith("last: rank ")
        assert "allreduce.after" not in rows
        assert ("cycles" in rows) == marks
        if marks:
            assert {event["name"] for event in rows["cycles"]} == {"CYCLE_START"}
        assert any("all_reduce #" in event["name"] for event in rows["group horovod:0"])
    names = [event for event in events if event["name"] == "process_name"]
    assert [one["pid"] for one in names] == [0, 1, 2]
    assert all("start_time_since_epoch_in_micros" in one["args"] for one in names)


def _started_again(paths: list[str]) -> None:
    with initialized():
        for number, path in enumerate(paths):
            hvd.start_timeline(path, mark_cycles=True)
            hvd.allreduce(torch.ones(1), name=f"x{number}")
            hvd.barrier()
        hvd.stop_timeline()


def test_a_second_one_ends_the_first(pools, tmp_path: Path):
    """Also covers the same file. A rank that was rejected would leave the others waiting."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    pools(2).run(_started_again, [str(one) for one in (first, second, second)])
    for path, there in ((first, {0}), (second, {2})):
        rows = _rows(json.loads(path.read_text())["traceEvents"], 1)
        assert {n for n in range(3) if f"allreduce.x{n}" in rows} == there, path
    assert sorted(tmp_path.iterdir()) == [first, second]


def _last(path: str) -> None:
    with initialized():
        hvd.start_timeline(path)
        handle = None
        if hvd.rank() != 1:
            handle = hvd.allreduce_async(torch.ones(1), name="x")
        hvd.barrier()
        if hvd.rank() == 1:
            handle = hvd.allreduce_async(torch.ones(1), name="x")
        hvd.synchronize(handle)
        hvd.stop_timeline()


def test_it_says_who_was_last(pools, tmp_path: Path):
    path = tmp_path / "timeline.json"
    pools(3).run(_last, str(path))
    for rank in range(3):
        first = _rows(json.loads(path.read_text())["traceEvents"], rank)["allreduce.x"][0]
        assert first["args"]["detail"] == "last: rank 1"


SCRIPT = """
import torch, torch_ringdist.horovod as hvd
hvd.init()
for _ in range(3):
    hvd.allreduce(torch.ones(10), name="x")
{}
"""


KILL = "import os, signal, time; time.sleep(3); os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize("end", ["", "hvd.shutdown()", KILL])
def test_the_launcher_asks_for_it(tmp_path: Path, end: str):
    path = tmp_path / "timeline.json"
    options = ("--timeline-filename", str(path), "--timeline-mark-cycles")
    done = ringdistrun("-np", "2", *options, sys.executable, "-c", SCRIPT.format(end))
    assert (done.returncode == 0) == (end != KILL), done.stderr
    if end == KILL:  # recorded events can still be read
        assert not path.exists()
        merge = ["-m", "torch_ringdist", "timeline", "merge", str(path)]
        assert "2 ranks" in preloaded.run(merge, env=ENVIRONMENT, timeout=100).stdout
    for rank in range(2):
        rows = _rows(json.loads(path.read_text())["traceEvents"], rank)
        assert len(rows["allreduce.x"]) == 6, rows
        assert "cycles" in rows


@pytest.mark.hosts
@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone")
def test_ranks_of_two_hosts(tmp_path: Path):
    path = tmp_path / "timeline.json"
    with Network(2) as network:
        names = [network.enter(host)[-1] for host in range(2)]
        done = ringdistrun(
            *("-np", "2", "-H", f"{names[0]}:1,{names[1]}:1", "--rsh", "ip netns exec"),
            *("--address", network.address(0), "--timeline-filename", str(path)),
            *(sys.executable, "-c", SCRIPT.format("hvd.shutdown()")),
        )
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())["traceEvents"]
    for rank in range(2):
        assert len(_rows(events, rank)["allreduce.x"]) == 6
    # Each call ends on both ranks at about the same time, on one clock.
    ends = [
        [event["ts"] + event["dur"] for event in _rows(events, rank)["allreduce.x"]]
        for rank in range(2)
    ]
    assert all(abs(a - b) < 1e7 for a, b in zip(*ends, strict=True)), ends
