"""`python -m benchmarks.recovery`: a run, its output, and the problems that its checks detect."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.recovery import verify  # noqa: E402
from benchmarks.recovery.answer import Answer, Lost, Shrink, Sums  # noqa: E402
from benchmarks.recovery.plan import SIZE, Kill, Plan  # noqa: E402

pytestmark = pytest.mark.tools

PIDS = {rank: 1000 + rank for rank in range(SIZE)}


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.recovery", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)


def _mentioned(*words: str) -> list[str]:
    """Returns command lines of live processes that contain these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # the process has ended
            continue
        if all(word in line for word in words):
            found.append(line)
    return found


def test_a_small_run(tmp_path: Path):
    out = tmp_path / "out.jsonl"
    done = _run("--runs", "3", "--first", "8", "--seed", "7", "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 7" in done.stdout
    runs = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["number"] for one in runs] == [8, 9, 10]
    assert [one["kind"] for one in runs] == ["one victim", "with the store, two", "two victims"]
    for one in runs:
        assert one["problems"] == [] and one["seconds"] > 0
        assert len(one["answers"]) == SIZE - len(one["kills"])
    rows = [line.split()[0] for line in done.stdout.splitlines()[-4:]]
    assert rows == ["all", "one", "two", "with"]


def test_a_run_that_fails_is_printed_and_leaves_nothing(tmp_path: Path):
    arguments = ("--runs", "1", "--seed", "246813579", "--limit", "0.001")
    done = _run(*arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: run 0 of seed 246813579 kills rank" in done.stdout
    # On a busy machine some ranks may have answered before the limit was checked.
    late = re.search(r"no answer from .*rank (\d) when the run's 0\.001 s were over", done.stdout)
    assert late, done.stdout
    assert f"---- rank {late[1]} (pid " in done.stdout
    assert "--seed 246813579 --first 0 --runs 1" in done.stdout
    assert "1 of 1 runs failed: 0" in done.stdout
    assert _mentioned("benchmarks.recovery", "246813579") == []


@pytest.mark.skipif(not importlib.util.find_spec("torchft"), reason="needs torchft 0.2")
def test_torchft_takes_part():
    done = _run("--peer", "torchft", "--runs", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(bool(importlib.util.find_spec("torchft")), reason="torchft is here")
def test_torchft_is_missing():
    done = _run("--peer", "torchft")
    assert done.returncode == 1
    assert "pip install" in done.stderr and "torchft==0.2.0" in done.stderr


def test_plans_are_of_all_kinds_and_follow_from_the_seed():
    plans = [Plan.draw(number, 3) for number in range(200)]
    assert plans == [Plan.draw(number, 3) for number in range(200)]
    assert sum(len(plan.kills) == 2 for plan in plans) == 100
    with_store = [plan for plan in plans if 0 in plan.victims]
    assert [plan.number for plan in with_store] == list(range(9, 200, 10))
    assert sum(len(plan.kills) == 2 for plan in with_store) == 10
    assert {plan.victims.index(0) for plan in with_store} == {0, 1}
    for plan in plans:
        assert len(set(plan.victims)) == len(plan.kills)


def test_sums_tell_who_took_part():
    some, others = Sums(1), Sums(3)
    total = some.mine(5000) + others.mine(5000)
    assert some.members(total) == (1, 3)
    assert some.wrong(total, (1, 3)) == ""
    total[4321] += 1
    assert "element 4321 of 5000 of the sum over the ranks [1, 3] is" in some.wrong(total, (1, 3))


def _shrink(old: int, new: int, lost: list[int], stayed: list[int]) -> Shrink:
    victims = tuple(Lost(rank, "died", PIDS[rank]) for rank in lost)
    return Shrink(old, new, victims, tuple(stayed), 8, 7, "an error", 0.0, 0.0)


def _answers() -> tuple[Plan, list[Answer]]:
    """Returns reports where rank 0 has seen two deaths one after another, and rank 3 both at
    once."""
    plan = Plan(0, 0, (Kill(1, 0.0), Kill(2, 0.0)))
    both = (_shrink(0, 1, [1], [0, 2, 3]), _shrink(1, 2, [2], [0, 3]))
    at_once = (_shrink(0, 2, [1, 2], [0, 3]),)
    return plan, [
        Answer(0, (0, 3), 0, 1.0, "ab", both),
        Answer(3, (0, 3), 1, 1.0, "ab", at_once),
    ]


def _one_shrink(answer: Answer, **changed: object) -> Answer:
    return replace(answer, shrinks=(replace(answer.shrinks[0], **changed), *answer.shrinks[1:]))


def test_two_ways_to_the_same_members_are_right():
    plan, answers = _answers()
    assert verify.of_shrinks(plan, answers, PIDS) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: replace(a, members=(0, 2, 3)), "its last group has [0, 2, 3], but [0, 3]"),
        (lambda a: replace(a, new_rank=0), "rank 3 has become 0 of (0, 3)"),
        (lambda a: replace(a, bits="cd"), "the survivors' results differ"),
        (lambda a: replace(a, shrinks=()), "the survivors' last generations differ"),
        (lambda a: replace(a, shrinks=()), "all that was lost is [], but [1, 2] were killed"),
        (lambda a: _one_shrink(a, generation=3), "the survivors' last generations differ"),
        (lambda a: _one_shrink(a, lost=()), "generation 2 has lost nobody"),
        (lambda a: _one_shrink(a, stayed=(3,)), "generation 2 has [3], but lost [1, 2]"),
        (lambda a: _one_shrink(a, first_unfinished=9), "9 is the first unfinished all_reduce"),
        (
            lambda a: _one_shrink(a, lost=(Lost(1, "died", 5), Lost(2, "died", 1002))),
            "but rank 1, pid 1001, was killed",
        ),
        (
            lambda a: _one_shrink(a, lost=(Lost(1, "silent", 1001), Lost(2, "died", 1002))),
            "but rank 1, pid 1001, was killed",
        ),
    ],
)
def test_what_is_wrong_is_noticed(change: Callable[[Answer], Answer], words: str):
    plan, (one, other) = _answers()
    found = verify.of_shrinks(plan, [one, change(other)], PIDS)
    assert any(words in problem for problem in found), found


def test_reports_that_differ_are_noticed():
    plan = Plan(0, 0, (Kill(1, 0.0),))
    shrink = _shrink(0, 1, [1], [0, 2, 3])
    answers = [Answer(rank, (0, 2, 3), i, 1.0, "", (shrink,)) for i, rank in enumerate((0, 2, 3))]
    assert verify.of_shrinks(plan, answers, PIDS) == []
    answers[1] = _one_shrink(answers[1], first_unfinished=7)
    found = verify.of_shrinks(plan, answers, PIDS)
    assert any("the reports from generation 0 to 1 differ" in problem for problem in found), found
    assert any("rank 2: 7 is the first unfinished" in problem for problem in found), found
