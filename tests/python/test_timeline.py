"""Timelines recorded by ranks: one file from several."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import torch_ringdist
from torch_ringdist import _timeline
from torch_ringdist.__main__ import main


def _write(
    path: Path, rank: int, events: list[dict[str, Any]], start: float = 1e6, epoch: int = 10**15
) -> Path:
    about = [
        {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}},
        {
            **{"ph": "M", "pid": rank, "name": "start", "ts": start},
            "args": {"start_time_since_epoch_in_micros": epoch},
        },
    ]
    lines = [json.dumps(event) + ",\n" for event in about + events]
    path.write_text("[\n" + "".join(lines))
    return path


def _span(rank: int, ts: float, name: str = "work") -> dict[str, Any]:
    return {"ph": "X", "pid": rank, "tid": 1, "ts": ts, "dur": 5.0, "name": name}


def _clock(rank: int, ts: float, ahead: float) -> dict[str, Any]:
    return {"ph": "M", "pid": rank, "name": "clock", "ts": ts, "args": {"offset_us": ahead}}


def _merged(path: Path, *parts: Path) -> list[dict[str, Any]]:
    _timeline.merge(parts, path)
    return _events(path)


def _events(path: Path) -> list[dict[str, Any]]:
    """Returns the events of the object, the form that every viewer accepts."""
    return json.loads(path.read_text())["traceEvents"]


def _times(events: list[dict[str, Any]]) -> list[tuple[int, float]]:
    return [(event["pid"], event["ts"]) for event in events if event["ph"] == "X"]


def test_ranks_of_one_host_have_one_clock(tmp_path: Path):
    # Their wall clock was adjusted in between.
    one = _write(tmp_path / "t.rank-1", 1, [_span(1, 1000500.0)], start=1000400.0)
    zero = _write(tmp_path / "t.rank-0", 0, [_span(0, 1000100.0)], epoch=10**15 + 900)
    events = _merged(tmp_path / "t", one, zero)
    assert _times(events) == [(0, 100.0), (1, 500.0)]
    named = [event for event in events if event["name"] == "process_name"]
    assert [one["args"]["name"] for one in named] == ["rank 0", "rank 1"]
    assert named[0]["args"]["start_time_since_epoch_in_micros"] == 10**15 + 900


def test_clocks_that_were_compared_are_aligned(tmp_path: Path):
    zero = _write(tmp_path / "t.rank-0", 0, [_span(0, 1000100.0)])
    # Between comparisons, the offset changes linearly; outside, it is constant.
    moved = [_clock(1, 5000.0, 1e6), _clock(1, 7000.0, 1e6 + 100)]
    spans = [_span(1, ts) for ts in (4000.0, 5000.0, 6000.0, 8000.0)]
    one = _write(tmp_path / "t.rank-1", 1, moved + spans, start=4000.0, epoch=7)
    events = _merged(tmp_path / "t", zero, one)
    starts = [
        e["args"]["start_time_since_epoch_in_micros"] for e in events if e["name"] == "process_name"
    ]
    assert starts == [10**15] * 2
    assert _times(events) == [
        (0, 100.0),
        (1, 4000.0),
        (1, 5000.0),
        (1, 6050.0),
        (1, 8100.0),
    ]


def test_of_clocks_that_were_not_the_wall_clock_counts(tmp_path: Path):
    zero = _write(tmp_path / "rank-0.json", 0, [_span(0, 1000100.0)])
    one = _write(tmp_path / "rank-1.json", 1, [_span(1, 9e9 + 50)], start=9e9, epoch=10**15 + 20)
    assert _times(_merged(tmp_path / "t", zero, one)) == [(0, 100.0), (1, 70.0)]


def test_what_a_killed_rank_has_left_counts(tmp_path: Path):
    path = _write(tmp_path / "t.rank-0", 0, [_span(0, 1000100.0), _span(0, 1000200.0)])
    path.write_text(path.read_text()[:-20])
    empty = tmp_path / "t.rank-1"
    empty.write_text("[\n")
    assert _times(_merged(tmp_path / "t", path, empty)) == [(0, 100.0)]
    with pytest.raises(_timeline.TimelineError, match="no record of a rank"):
        _timeline.merge([empty], tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t", "t.rank-0", "t.rank-1"]


def test_files_of_two_jobs_are_refused(tmp_path: Path):
    def refused(*parts: Path, why: str) -> None:
        with pytest.raises(_timeline.TimelineError) as caught:
            _timeline.merge(parts, tmp_path / "t")
        assert all(str(part) in str(caught.value) for part in parts[-2:]), caught.value
        assert why in str(caught.value)
        assert not (tmp_path / "t").exists()

    zero = _write(tmp_path / "rank-0.json", 0, [_span(0, 90e6)], 80e6, 10**15 + 79 * 10**6)
    again = _write(tmp_path / "other.json", 0, [_span(0, 91e6)], 80e6, 10**15 + 79 * 10**6)
    refused(zero, again, why="both are of rank 0")
    # An earlier job of this host had more ranks, and left their files.
    one = _write(
        tmp_path / "rank-1.json", 1, [_span(1, 85e6), _span(1, 95e6)], 84e6, 10**15 + 83 * 10**6
    )
    old = _write(tmp_path / "rank-2.json", 2, [_span(2, 2e6), _span(2, 30e6)])
    refused(one, old, zero, why="begins 50 s after the end of the first")
    # On another host, with a clock that may be wrong, this is certain after an hour only.
    elsewhere = _write(tmp_path / "rank-3.json", 3, [_span(3, 9e9)], 9e9, 10**15 - 60 * 10**6)
    assert len(_times(_merged(tmp_path / "t", zero, one, elsewhere))) == 4
    (tmp_path / "t").unlink()
    long_ago = _write(tmp_path / "rank-3.json", 3, [_span(3, 9e9)], 9e9, 10**15 - 4000 * 10**6)
    refused(one, long_ago, zero, why="after the end of the first")
    # A rank that was killed before its first operation, or began late, does not cause this.
    empty = _write(tmp_path / "rank-4.json", 4, [])
    late = _write(tmp_path / "rank-5.json", 5, [_span(5, 94e6)], 93e6, 10**15 + 92 * 10**6)
    assert len(_times(_merged(tmp_path / "t", zero, one, empty, late))) == 4


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert main(["timeline", "merge", str(tmp_path / "t[1]")]) == 1
    assert "no rank has recorded anything there" in capsys.readouterr().err
    _write(tmp_path / "t[1].rank-0", 0, [_span(0, 1000100.0)])
    assert main(["timeline", "merge", str(tmp_path / "t[1]")]) == 0
    assert "t[1]: 1 rank;" in capsys.readouterr().out
    _write(tmp_path / "t[1].rank-1", 1, [_span(1, 1000100.0)])
    assert main(["timeline", "merge", str(tmp_path / "t[1]")]) == 0
    assert "t[1]: 2 ranks" in capsys.readouterr().out
    assert len(_times(_events(tmp_path / "t[1]"))) == 2
    assert main(["timeline", "merge", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    assert len(_times(_events(tmp_path / "out"))) == 2
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", "merge", "."]) == 0  # a folder without a name
    assert tmp_path.with_name(tmp_path.name + ".json").exists()


@pytest.mark.parametrize(
    "event",
    [
        {"name": "start", "ts": 1},
        {"name": "start", "ts": 1, "args": []},
        {"name": "start", "ts": "soon", "args": {"start_time_since_epoch_in_micros": 1}},
        {"name": "clock", "ts": 1, "args": {}},
        {"name": "process_name", "args": {"name": "no pid"}},
        {"name": "process_name", "pid": 1, "args": []},
        {"name": "x", "ts": "now"},
        {"name": "clock", "args": None},
    ],
)
def test_files_of_other_programs_are_skipped(tmp_path: Path, event: dict[str, Any]):
    zero = _write(tmp_path / "rank-0.json", 0, [_span(0, 1000100.0)])
    other = _write(tmp_path / "other.json", 1, [event])
    assert _times(_merged(tmp_path / "t", zero, other)) == [(0, 100.0)]


def test_an_error_leaves_no_part_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    _write(tmp_path / "t.rank-0", 0, [_span(0, 1000100.0)])
    words = ["timeline", "merge", str(tmp_path / "t")]
    assert main([*words, "-o", "/nowhere/t"]) == 1
    assert "--out: '/nowhere/t' cannot be written: No such" in capsys.readouterr().err

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_timeline, "_write", fail)
    assert main(words) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["t.rank-0"]


def _traced(folder: str) -> None:
    group = dist.new_group(backend="ringdist", group_desc="traced")
    with torch_ringdist.trace(folder):
        with (
            pytest.raises(torch_ringdist.ArgumentError, match="recorded already"),
            torch_ringdist.trace(folder + "/other"),
        ):
            pass
        for _ in range(3):
            dist.all_reduce(torch.ones(1000), group=group)
    dist.all_reduce(torch.ones(7), group=group)
    dist.destroy_process_group(group)


@pytest.mark.check
def test_trace_has_a_row_for_each_group(pools, tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    pools(2).run(_traced, str(folder))
    assert sorted(path.name for path in folder.glob("*.json")) == ["rank-0.json", "rank-1.json"]
    events = _merged(tmp_path / "t", *_timeline.parts_of(folder))
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 6, spans
    assert all(one["name"].startswith("all_reduce #") for one in spans)
    assert all("float32, 1000 elements, SUM" in one["name"] for one in spans)
    assert all(one["dur"] > 0 for one in spans)


def _traced_for_ever(folder: str) -> None:
    with torch_ringdist.trace(folder):
        while True:
            dist.all_reduce(torch.ones(1000))


def test_trace_of_a_process_that_is_killed(fresh_pool, tmp_path: Path):
    pool = fresh_pool(2)
    pool.start(_traced_for_ever, str(tmp_path))
    path = tmp_path / "rank-1.json"
    while not path.exists() or "all_reduce" not in path.read_text():
        time.sleep(0.05)  # or the test times out
    pool.kill(1)
    assert len(_times(_merged(tmp_path / "t", path))) > 0
    with pytest.raises(Exception, match="rank 1"):
        pool.collect(without=(1,))
