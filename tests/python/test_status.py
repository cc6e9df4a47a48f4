"""ringdist status: its diagnosis, rows and errors. test_status_hosts has real jobs."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_cli_dump import PACKAGE_PARENT, serve

from torch_ringdist import _flight_recorder, _snapshot, _status
from torch_ringdist.__main__ import main
from torch_ringdist._dump import DumpError

CALL = "all_reduce #7 (float32, 4 elements, SUM)"
LIBRARY = "/usr/lib/python3.11/site-packages/torch/x.py"
STACK = f'Thread 0x1:\n  File "{LIBRARY}", line 1 in wait\n  File "train.py", line 42 in step\n'
END = {"version": 1, "collector": "0" * 16, "seconds": 0.1, "missing": []}


def group(rank: int, state: str = "idle", **more: Any) -> dict[str, Any]:
    usual = {"name": "0", "id": "a" * 16, "rank": rank, "size": 4, "last": 6, "text": state}
    return {**usual, "state": state, "age": 3.0, "ranks": [], **more}


def waits(rank: int, *on: int, **more: Any) -> dict[str, Any]:
    return group(rank, "waits", op=7, call=CALL, ranks=list(on), **more)


def process(*groups: dict[str, Any], stack: str = STACK, pid: int = 0) -> dict[str, Any]:
    pid = pid or 100 + groups[0]["rank"]
    found = {"host": "h", "pid": pid, "context": f"{pid:016x}", "groups": groups, "stack": stack}
    return {**found, "stragglers": [], "slow_links": []}


def missing(rank: int, state: str, **more: Any) -> dict[str, Any]:
    groups = [{"id": "a" * 16, "rank": rank}]
    pid = 100 + rank
    usual = {"context": f"{pid:016x}", "host": "h", "pid": pid, "state": state, "groups": groups}
    return {**usual, **more}


def snapshot(*found: dict[str, Any], gone: tuple[dict[str, Any], ...] = ()) -> _snapshot.Snapshot:
    return _snapshot.parse([json.dumps(one) for one in (*found, {**END, "missing": gone})])


def test_the_rank_that_the_others_wait_for():
    others = [process(waits(rank, 1)) for rank in (0, 2, 3)]
    found = snapshot(process(group(1, "awaited", op=7, call=CALL, ranks=[0, 2, 3])), *others)
    assert _status.diagnosis_lines(found) == [
        f"ranks 0, 2, 3 wait in {CALL} of group '0' since 3.0 s, for rank 1",
        "rank 1 (pid 101 on h) is in no operation, at train.py:42 in step",
    ]
    rows = _status.as_text(found).splitlines()[4:]
    assert len(rows) == 2, rows
    assert re.match(r"0, 2, 3 +3 on h +3\.0 s +waits in all_reduce .* for rank 1 +train", rows[0])
    assert re.match(r"1 +h:101 +- +elsewhere +train", rows[1])


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        (missing(1, "stopped"), "is stopped, by a signal or a debugger: kill -CONT 101 lets it go"),
        (missing(1, "silent", silent_for=2.5), "and nothing has come from it for 2.5 s"),
        (missing(1, "lost", cause="it was killed"), "is lost: it was killed"),
        (missing(1, "left"), "has left the group"),
    ],
)
def test_a_rank_that_does_not_answer(gone: dict[str, Any], text: str):
    found = snapshot(process(waits(0, 1)), gone=(gone,))
    first, second = _status.diagnosis_lines(found)
    assert first.startswith(f"rank 0 waits in {CALL}") and first.endswith("for rank 1")
    assert second.startswith("rank 1 (pid 101 on h) ") and text in second
    found = snapshot(process(group(0)), gone=(gone,))
    if gone["state"] != "left":
        assert text in _status.diagnosis_lines(found)[1]


def test_a_wait_for_one_that_waits_in_another_group():
    pair = {"name": "pair", "id": "b" * 16, "size": 2, "op": 3, "call": "recv #3", "age": 1.0}
    inner = group(0, "waits", **{**pair, "ranks": [1]})
    found = snapshot(
        process(waits(0, 1)),
        process(group(1), inner),
        process(group(2), group(1, **{**pair, "state": "idle"})),
    )
    first, second = _status.diagnosis_lines(found)
    assert first == "rank 0 waits in recv #3 of group 'pair' since 1.0 s, for rank 1"
    assert second.startswith("rank 1 (pid 102 on h) is in no operation")


def test_ranks_that_wait_for_each_other():
    text = f"{CALL} has been waiting 3.0 s for data from rank 1, though all ranks have called it"
    found = snapshot(process(waits(0, 1, text=text)), process(waits(1, 0)))
    told = "they wait for data from rank 1, though all ranks have called it"
    assert _status.diagnosis_lines(found)[1] == told
    receives = [
        process(group(rank, "waits", op=0, call="recv", ranks=[1 - rank], age=9.0 - rank))
        for rank in range(2)
    ]
    first, second = _status.diagnosis_lines(snapshot(*receives))
    assert first == "rank 0 waits in recv of group '0' since 9.0 s, for rank 1"
    where = "at train.py:42 in step"
    assert second == f"rank 1 (pid 101 on h) waits in recv of group '0', {where}"


@pytest.mark.parametrize("wait", ["any rank to send", "the group's members to be found"])
def test_a_wait_without_ranks(wait: str):
    text = f"recv from any rank has been waiting 5.0 s for {wait}"
    one = group(0, "waits", op=0, call="recv from any rank", text=text)
    found = snapshot(process(one), process(waits(2, 3)), process(group(3)))
    assert _status.diagnosis_lines(found)[0].endswith("for rank 3"), "not mixed with the other wait"
    found = snapshot(process(one))
    assert _status.diagnosis_lines(found)[1] == f"it waits for {wait}"


def test_nobody_waits():
    found = snapshot(process(group(0, "runs", op=7, call=CALL)), process(group(1)))
    assert _status.diagnosis_lines(found)[1].startswith("1 of 2 processes are in an operation")
    found = snapshot(process(group(0, "failed", text="failed: rank 1 is lost")))
    assert _status.diagnosis_lines(found) == ["group '0' has failed", "rank 1 is lost"]
    busy = {**process(group(0)), "groups": None}
    assert "progress thread" in _status.diagnosis_lines(snapshot(busy))[1]


def test_a_straggler_is_named():
    one = {"group": "a" * 16, "rank": 3, "share": 0.3, "late": 0.02, "cause": "idle", "text": "why"}
    found = snapshot({**process(group(0)), "stragglers": [one]}, process(group(3)))
    assert _status.as_text(found).splitlines()[2] == "straggler: why"
    assert _status.as_json(found)["stragglers"] == [one]
    json.dumps(_status.as_json(found))


def test_32_ranks_take_few_lines():
    ranks = [
        process(waits(rank, 5), stack=f'  File "t.py", line {rank} in f\n') for rank in range(32)
    ]
    ranks[5] = process(group(5))
    text = _status.as_text(snapshot(*ranks))
    assert text.startswith("ranks 0-4, 6-31 wait in ")
    assert len(text.splitlines()) <= 60


def test_where_a_rank_is(monkeypatch: pytest.MonkeyPatch):
    [one] = snapshot(process(group(0), stack=f'  File "{LIBRARY}", line 9 in poll\n')).processes
    assert str(one.at) == f"{LIBRARY}:9 in poll", "the newest line, if all are of libraries"
    [one] = snapshot(process(group(0), stack="")).processes
    assert one.at is None and one.source == ""
    monkeypatch.setattr(socket, "gethostname", lambda: "h")
    [one] = snapshot(process(group(0), stack=f'  File "{__file__}", line 1 in f\n')).processes
    assert one.source.startswith('"""ringdist status')
    for other in (
        "test_status.py",
        "/dev/zero",
        "/proc/self/stat",
        "/no/such/file",
    ):  # a file of another folder, and a device
        [one] = snapshot(process(group(0), stack=f'  File "{other}", line 1 in f\n')).processes
        assert one.at is not None and one.source == ""


def test_json_has_the_same(capsys):
    found = snapshot(process(waits(0, 1)), process(group(1)))
    told = json.loads(json.dumps(_status.as_json(found)))
    assert told["diagnosis"] == _status.diagnosis_lines(found)
    assert (told["op"], told["call"], told["waiting"]) == (7, CALL, [0])
    [late] = told["missing"]
    assert (late["rank"], late["pid"], late["state"]) == (1, 101, "elsewhere")
    assert late["at"] == {"file": "train.py", "line": 42, "function": "step", "source": ""}
    assert [one["rank"] for one in told["processes"]] == [0, 1]


def test_files_of_the_flight_recorder(tmp_path: Path):
    main_group, pair = "a" * 16, "b" * 16
    ops = [
        [5, main_group, 0, 1, "all_gather", "float32", 3, 6, -1, 100, 200, False],
        [6, pair, 0, 1, "broadcast", "int64", 0, 4, -1, 300, 400, True],
        [7, main_group, 0, 0, "send", "int8", 2, 0, 1, 500, 600, False],
        [8, main_group, 0, 2, "barrier", "int8", 0, 0, -1, 700, 0, False],
    ]
    inner = {**group(0), "id": pair}  # another group of the same name
    found = snapshot({**process(group(0), inner), "ops": ops}, gone=(missing(1, "silent"),))
    paths = _flight_recorder.write(found, tmp_path / "new" / "folder")
    assert [one.name for one in paths] == ["ringdist_rank_0", "ringdist_rank_1"]
    told, empty = (pickle.loads(one.read_bytes()) for one in paths)
    assert empty["entries"] == [] and f"0-{main_group}" in empty["pg_config"]
    assert told["pg_config"][f"0-{main_group}"]["ranks"] == "[0, 1]"
    entries = told["entries"]
    names = ["gloo:_all_gather_base", "gloo:broadcast", "gloo:send 0->1", "gloo:barrier"]
    assert [one["profiling_name"] for one in entries] == names
    sizes = [(one["input_sizes"], one["output_sizes"]) for one in entries]
    assert sizes == [([[3]], [[6]]), ([[4]], [[4]]), ([[2]], [[0]]), ([[]], [[]])]
    assert [one["state"] for one in entries] == ["completed", "started", "completed", "started"]
    assert entries[0]["duration_ms"] == 1e-4 and entries[3]["duration_ms"] is None
    assert entries[0]["frames"] == [] and entries[3]["frames"][1]["line"] == 42


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--watch", "--json"], "--watch goes without --json, --flight-recorder and --statistics"),
        (["--flight-recorder=x"], "writes the files of one job, and 2 are here: add the PID"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], error: str, monkeypatch, capsys):
    found = snapshot(process(group(0)))
    monkeypatch.setattr(_snapshot, "take", lambda pid, details: ([found, found], []))
    assert main(["status", *words]) == 1
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ([json.dumps({**END, "version": 2})], "version 2 of snapshots, and this command reads"),
        (["no JSON"], "answered with no snapshot"),
        (["[]"], "answered with no snapshot"),
        ([json.dumps({**END, "missing": [{}]})], "answered with no snapshot"),
    ],
)
def test_other_answers_are_refused(texts: list[str], error: str):
    with pytest.raises(DumpError, match=error):
        _snapshot.parse(texts)


@pytest.mark.parametrize(
    "bad", ["{}", "[]", "1", json.dumps({**process(group(0)), "pid": "x"}), "\x1b[2J"]
)
def test_an_answer_that_cannot_be_read_spoils_no_other(bad: str):
    found = _snapshot.parse([bad, json.dumps(process(group(1))), json.dumps(END)])
    assert [one.pid for one in found.processes] == [101]
    [problem] = found.problems
    assert "cannot be read" in problem and "\x1b" not in problem


FRAME = struct.Struct("<IB")


def answer(*texts: str, last: int = 0x24) -> Callable[[socket.socket], None]:
    def serve_one(peer: socket.socket) -> None:
        assert peer.recv(FRAME.size + 1, socket.MSG_WAITALL) == FRAME.pack(1, 0x22) + b"\x11"
        for i, text in enumerate(texts):
            kind = last if i == len(texts) - 1 else 0x23
            peer.sendall(FRAME.pack(len(text), kind) + text.encode())

    return serve_one


@pytest.fixture
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the processes of other tests."""
    found = _snapshot._dump.find_all
    here = os.getpid()
    monkeypatch.setattr(
        _snapshot._dump, "find_all", lambda: [one for one in found() if one[0] == here]
    )


@pytest.mark.usefixtures("only_ours")
@pytest.mark.parametrize("words", [[], [str(os.getpid())]])
def test_a_job_is_shown_once(words: list[str], capsys):
    ours = {**process(group(0), pid=os.getpid()), "host": socket.gethostname()}
    other = {**process(group(1)), "context": f"{2:016x}"}
    texts = [json.dumps({**ours, "context": f"{1:016x}"}), json.dumps(other), json.dumps(END)]
    with serve(answer(*texts), f"{1:016x}"), serve(answer("never asked"), f"{2:016x}"):
        assert main(["status", *words]) == 0
    assert capsys.readouterr().out.count("no rank waits for another one") == 1


@pytest.mark.usefixtures("only_ours")
def test_processes_that_do_not_answer_are_named(capsys):
    with serve(answer("x", last=0x21), f"{1:016x}"):
        assert main(["status"]) == 1
    assert f"process {os.getpid()} answered with frame type 0x21" in capsys.readouterr().err


@pytest.mark.usefixtures("only_ours")
def test_errors_name_the_process(capsys):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid, text in ((ended.pid, "there is no process"), (os.getpid(), "has no ringdist group")):
        assert main(["status", str(pid)]) == 1
        assert text in capsys.readouterr().err
    assert main(["status"]) == 1
    assert "no process of this user has a ringdist group" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["module", "script"])
def test_it_needs_no_torch(how: str, tmp_path: Path):
    words = ["-m", "torch_ringdist"]
    if how == "script":  # installers write such a script, and link to it
        script = tmp_path / "installed"
        script.write_text("from torch_ringdist.__main__ import main\nraise SystemExit(main())\n")
        (tmp_path / "ringdist").symlink_to(script)
        words = ["ringdist"]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *words, "status", "--help"],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"\| +torch$", done.stderr, re.MULTILINE), "it imports torch"


def test_watch_shows_it_anew(monkeypatch: pytest.MonkeyPatch, capsys):
    pytest.importorskip("rich", reason="--watch needs rich")
    texts, shown = iter(["first", "second"]), []

    def take(pid: int | None, details: int) -> tuple[list[_snapshot.Snapshot], list[str]]:
        if (text := next(texts, None)) is None:
            raise KeyboardInterrupt
        return [], [text]

    monkeypatch.setattr(_snapshot, "take", take)
    monkeypatch.setattr(_status, "_WATCH", 0.0)
    monkeypatch.setattr("rich.live.Live.update", lambda _, text, refresh: shown.append(text.plain))
    assert main(["status", "--watch"]) == 130
    assert [one.splitlines()[-1] for one in shown] == ["first", "second"]
