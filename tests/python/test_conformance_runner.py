"""The runner of `make conformance`, on a fake suite: outcomes, time limits, resuming."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.conformance import __main__ as cli  # noqa: E402
from tests.conformance import lists, report, results  # noqa: E402
from tests.conformance.client import Result, Server  # noqa: E402

pytestmark = pytest.mark.tools

FAKE = """
import os, signal, sys, time

def describe(): return "fake 1.0"
def names():
    return ["test_dies", "test_fails", "test_gloo", "test_hangs", "test_late_skip", "test_passes",
            "test_skips"]
def skipped(name): return "asked of others" if name == "test_skips" else None
def exit_reasons(): return {77: "needs two GPUs"}
def clean_up(): pass

def prepare(name):
    with open(os.environ["FAKE_LOG"], "a") as log:
        print(name, file=log)
    return os.environ["FAKE_LOG"]

def wait_here(log):
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    with open(log + ".child", "a") as out:
        print(child, file=out)
    time.sleep(60)

def run_rank(backend, name, rank, file, pipe):
    if name == "test_hangs":
        wait_here(file)
    if name == "test_dies" and rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "test_late_skip":
        sys.exit(77)
    if name == "test_fails" or (name == "test_gloo" and backend != "gloo"):
        if rank == 1:
            pipe.send("Traceback (most recent call last)\\n  File x\\nValueError: wrong sum\\nC++")
            sys.exit(10)
        time.sleep(60)
    assert os.environ["WORLD_SIZE"] == "2" and os.environ["CONFORMANCE_GATES"] == "lifted"
    sys.exit(0)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the suite importable as fake_suite. Its log has a line for each test that was run."""
    (tmp_path / "fake_suite.py").write_text(FAKE)
    log = tmp_path / "log"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("FAKE_LOG", str(log))
    return log


@pytest.fixture
def server(fake: Path, tmp_path: Path):
    made = Server("fake_suite", 2, "lifted", tmp_path / "logs")
    yield made
    made.close()


def run_cli(tmp_path: Path, *words: str) -> int:
    return cli.main(["--suite", "fake_suite", "--out", str(tmp_path / "out"), *words])


def test_each_outcome_is_told(server: Server):
    assert server.suite == "fake 1.0"
    assert server.run("ringdist", "test_passes", 20).outcome == "passed"
    skipped = server.run("ringdist", "test_skips", 20)
    assert (skipped.outcome, skipped.reason) == ("skipped", "asked of others")
    late = server.run("ringdist", "test_late_skip", 20)
    assert (late.outcome, late.reason) == ("skipped", "needs two GPUs")
    died = server.run("ringdist", "test_dies", 20)
    assert (died.outcome, died.reason) == ("failed", "rank 1 ended with SIGSEGV")


def test_a_failing_rank_ends_the_test_at_once(server: Server):
    start = time.monotonic()
    failed = server.run("ringdist", "test_fails", 50)
    assert time.monotonic() - start < 45
    assert (failed.outcome, failed.reason) == ("failed", "ValueError: wrong sum")
    assert "-- rank 1" in failed.detail and "File x" in failed.detail


def test_a_time_limit_shows_all_stacks_and_leaves_no_process(server: Server, fake: Path):
    hung = server.run("ringdist", "test_hangs", 4)
    assert (hung.outcome, hung.reason) == ("failed", "no end within 4 s")
    assert hung.detail.count("in wait_here") == 2, hung.detail
    children = [int(pid) for pid in Path(f"{fake}.child").read_text().split()]
    assert len(children) == 2
    # The children are killed, but not reaped yet.
    until = time.monotonic() + 60
    while any(is_running(pid) for pid in children) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(is_running(pid) for pid in children)
    assert server.run("ringdist", "test_passes", 20).outcome == "passed"


def is_running(pid: int) -> bool:
    """Returns False for a zombie, too, because its new parent may reap it late."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_server_that_cannot_import_the_suite_is_an_error(tmp_path: Path):
    with pytest.raises(RuntimeError, match="while importing no_such_suite"):
        Server("no_such_suite", 2, "lifted", tmp_path)


def test_resumes_and_keeps_backends_apart(fake: Path, tmp_path: Path, capfd):
    words = ["--world-size", "2", "--only", "test_passes", "test_gloo"]
    assert run_cli(tmp_path, *words, "--backend", "gloo") == 0
    assert fake.read_text().split() == ["test_gloo", "test_passes"]
    assert run_cli(tmp_path, *words) == 1
    # gloo did not run again.
    assert fake.read_text().split() == ["test_gloo", "test_passes"] * 2
    assert "MISSING" in capfd.readouterr().out
    assert run_cli(tmp_path, *words) == 1
    assert fake.read_text().split() == ["test_gloo", "test_passes"] * 2
    assert run_cli(tmp_path, *words, "--fresh", "--backend", "gloo") == 0
    assert fake.read_text().split() == ["test_gloo", "test_passes"] * 3


def test_lists_without_running(fake: Path, tmp_path: Path, capfd):
    assert run_cli(tmp_path, "--world-size", "2", "--list") == 0
    assert "test_hangs" in capfd.readouterr().out
    assert not fake.exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--world-size", "1"], "--world-size: 1: expected 2 or more"),
        (["--jobs", "0"], "--jobs: 0: expected 1 or more"),
        (["--backend", "mpi"], "invalid choice: 'mpi'"),
    ],
)
def test_bad_options(words: list[str], text: str, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert text in capsys.readouterr().err


def test_a_pattern_without_a_test_is_an_error(fake: Path, tmp_path: Path, capfd):
    assert run_cli(tmp_path, "--world-size", "2", "--only", "test_nothing*") == 2
    assert "no test matches 'test_nothing*'" in capfd.readouterr().err


def test_results_survive_other_writers_and_a_cut_off_file(tmp_path: Path):
    path = tmp_path / "some" / "results.json"
    results.Results(path).add(2, "test_a", Result("failed", "why", "how", 1.5))
    assert results.Results(path).get(2, "test_a") == Result("failed", "why", "how", 1.5)
    assert results.Results(path).get(3, "test_a") is None
    first, second = results.Results(path), results.Results(path)
    first.add(3, "test_a", Result("passed"))
    second.add(4, "test_a", Result("passed"))
    assert all(results.Results(path).get(size, "test_a") for size in (2, 3, 4))
    path.write_text(json.dumps({"2/test_a": {}})[:-3])
    assert results.Results(path).get(2, "test_a") is None


def test_verdict():
    passed, failed = Result("passed"), Result("failed", "ValueError: only for GLOO")
    skipped = Result("skipped", "by name")
    gloo = {"test_a": passed, "test_b": passed, "test_c": failed, "test_d": passed}
    ours = {"test_a": passed, "test_b": failed, "test_c": failed, "test_d": skipped}
    table = {2: {"gloo": gloo, "ringdist": ours}}
    documented, others = report.missing(table, {"test_b": "only for GLOO"})
    assert [line.split(": ")[1] for line in documented] == ["test_b"]
    assert [line.split(": ")[1] for line in others] == ["test_d"]
    # An error with other words counts as any failure.
    assert len(report.missing(table, {"test_b": "something else"})[1]) == 2
    assert [line.split()[:5] for line in report.counts(table).splitlines()[1:]] == [
        ["2", "gloo", "3", "1", "0"],
        ["2", "ringdist", "1", "2", "1"],
    ]
    assert "1  by name" in report.skips(table)


def test_lists_are_read(tmp_path: Path):
    path = tmp_path / "list.txt"
    path.write_text("# a list\ntest_a*: gpu  # why\n\ntest_ab: name: x\n")
    entries = lists.read(path)
    assert entries == {"test_a*": "gpu", "test_ab": "name: x"}
    assert lists.find(entries, "test_ab") == "gpu name: x"
    assert lists.find(entries, "test_b") == ""
    path.write_text("test_a\ntest_a\n")
    with pytest.raises(ValueError, match=r"list.txt:2: test_a is there twice"):
        lists.read(path)


def test_the_lists_of_the_repository():
    assert len(lists.quick()) == 40
    assert all(set(text.split()) <= {"gpu", "name", "world"} for text in lists.lifted().values())
    assert all(lists.refused().values())


def test_keys_name_what_a_result_depends_on():
    path = results.path_for(Path("/x"), "gloo", "torch 2.13.0+cu130", "lifted-0a1b", "")
    assert path == Path("/x/gloo-torch-2.13.0+cu130-lifted-0a1b.json")
    assert results.gates_key("lifted") != results.gates_key("upstream")
    assert results.checkout_key() == results.checkout_key()
    assert os.sep not in results.checkout_key()
