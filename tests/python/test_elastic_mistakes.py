"""Mistakes in programs that use torch_ringdist.elastic are reported where they are, and only
there."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.launched import ROOT, Launched, loop, preloaded, python_path, run_loop
from torch import nn

from torch_ringdist import ArgumentError, elastic
from torch_ringdist._launch import addresses
from torch_ringdist.elastic import _rank_state, _settings

# Errors of the newcomer about the group's state.
SAID = {
    loop.KEYS: "this process has entry 'more', the group has not",
    loop.SHAPES: "entry 'net' is 'weight: [65, 64] of torch.float32' on this process",
}


def test_a_newcomer_that_is_another_program_is_refused(tmp_path: Path):
    """Starts wrong newcomers in turn. Training continues."""
    script = ["--steps=1000000", "--pause=0.02"]
    with run_loop(tmp_path / "good", "--nproc-per-node=2", script=script) as job:
        job.wait_for_size(2)
        for wrong, said in SAID.items():
            more = [*script, f"--wrong={wrong}", "--worker=0"]
            with run_loop(tmp_path / wrong, f"--rdzv={job.address}", script=more) as bad:
                assert bad.end() == 1, bad.output()
                assert said in bad.output(), bad.output()
        assert len(job.events("generation")) == 2  # the group has not noticed
        job.send(signal.SIGTERM)
        assert job.end() == 128 + signal.SIGTERM, job.output()


# Joins without elastic.run, does as its argument requests, and lives on.
ROGUE = """
import sys, time
import torch, torch.distributed as dist, torch_ringdist
from torch_ringdist._join import ElasticJob
from torch_ringdist.elastic._rank_state import RankState, exchange

class Mine:
    pass

class Evil:
    def __reduce__(self):
        return open, (evil, "w")

address, what, evil = sys.argv[1:]
if what == "plain":
    torch_ringdist.join(address, job="elastic/default")
torch_ringdist.join(address, job=ElasticJob("default"))
size = dist.get_world_size()
if what == "bytes":
    record = torch.full((1024,), 0xff, dtype=torch.uint8)
    dist.all_gather([torch.empty_like(record) for _ in range(size)], record)
if what == "veteran":
    values = dict(steps=0, veteran=True, finished=False, leaves=False, start_ranks=2)
    exchange(RankState("0" * 32, terms="0" * 32, content="0" * 32, **values))
if what == "surrogate":
    values = dict(steps=0, veteran=False, finished=False, leaves=False, start_ranks=2, content="")
    exchange(RankState("\\ud800", terms="0" * 32, **values))
while what in ("object", "source"):
    try:
        if what == "object":
            dist.all_gather_object([None] * size, Mine())
        else:
            values = dict(veteran=False, finished=False, leaves=False, start_ranks=1, content="")
            exchange(RankState("0" * 32, steps=1 << 61, terms="0" * 32, **values))
            dist.broadcast_object_list([Evil()], src=dist.get_rank())
    except dist.DistNetworkError:
        raise
    except dist.DistError:
        torch_ringdist.shrink()
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("bytes", "newcomer refused: rank 2 has sent something else than where it stands"),
        ("surrogate", "newcomer refused: rank 2 has sent something else than where it stands"),
        ("veteran", "newcomer refused: rank 2 claims to have trained what no member has"),
        ("object", "newcomer refused: rank 2 does not take part in its first meeting"),
    ],
)
def test_a_newcomer_that_sends_something_else_is_refused(tmp_path: Path, what: str, said: str):
    """Starts a newcomer that sends something else. The job continues without it."""
    script = ["--steps=1000000", "--pause=0.02"]
    with run_loop(tmp_path, "--nproc-per-node=2", script=script) as job:
        pids = job.wait_for_size(2)
        rogue = _rogue(job.address, what, tmp_path)
        try:
            job.wait_for(lambda: re.search(said, job.output()))
            job.wait_for(lambda: [one for one in job.events("generation") if one["lost"]])
            assert job.wait_for_size(2) == pids
            job.send(signal.SIGTERM)
            assert job.end() == 128 + signal.SIGTERM, job.output()
        finally:
            rogue.kill()
            rogue.wait()


def test_a_newcomer_by_plain_join_is_refused(tmp_path: Path):
    with run_loop(tmp_path, "--nproc-per-node=1", script=["--steps=1000000"]) as job:
        job.wait_for_size(1)
        environment = {**os.environ, "PYTHONPATH": python_path()}
        done = preloaded.run(["-c", ROGUE, job.address, "plain", ""], env=environment, timeout=60)
        assert "becomes one of them by elastic.init()" in done.stderr, done
        assert len(job.events("generation")) == 1  # the job has not noticed
        job.send(signal.SIGTERM)
        assert job.end() == 128 + signal.SIGTERM, job.output()


def test_a_stranger_is_not_the_source_of_the_first_step(tmp_path: Path):
    """It claims the most steps before any rank has trained, and sends a pickle."""
    script = ["--rejoin-timeout=600"]  # the members would begin without a third one
    with run_loop(tmp_path, "--nproc-per-node=2", "--start-ranks=3", script=script) as job:
        job.wait_for(lambda: "2 of 3 ranks are there" in job.output())
        rogue = _rogue(job.address, "source", tmp_path)
        try:
            said = "newcomer refused: rank 2 does not take part in its first meeting"
            job.wait_for(lambda: re.search(f"{said}.*2 of 3 ranks are there", job.output(), re.S))
            job.send(signal.SIGTERM)
            assert job.end() == 128 + signal.SIGTERM, job.output()
        finally:
            rogue.kill()
            rogue.wait()
    assert not (tmp_path / "evil").exists()


# Trains a step, receives SIGTERM, and sends a pickle in place of its residuals.
LEAVER = """
import os, signal, sys
import torch.distributed as dist
sys.path.insert(0, sys.argv.pop())
from tests.chaos import loop
from torch_ringdist.elastic._residuals import Residuals
evil = sys.argv.pop()

class Evil:
    def __reduce__(self):
        return open, (evil, "w")

commit = loop.elastic.State.commit

def leave(state):
    os.kill(os.getpid(), signal.SIGTERM)
    commit(state)

loop.elastic.State.commit = leave
Residuals.hand_over = lambda self: dist.broadcast_object_list([Evil()], src=dist.get_rank())
loop.main()
"""


def test_who_leaves_with_something_else_is_named(tmp_path: Path):
    script, evil = ["--steps=1000000", "--pause=0.02"], tmp_path / "evil"
    (tmp_path / "leaver.py").write_text(LEAVER)
    line = [str(tmp_path / "leaver.py"), *script, str(evil), str(ROOT)]
    with run_loop(tmp_path / "job", "--nproc-per-node=2", script=script) as job:
        job.wait_for_size(2)
        with Launched(tmp_path / "leaver", ["--max-restarts=0", f"--rdzv={job.address}"], line):
            assert job.end() == 1, job.output()
    said = "MessageError: ringdist: elastic: rank 2 has sent something else than the residuals"
    assert said in job.output(), job.output()
    assert not evil.exists()


def _rogue(address: str, what: str, folder: Path) -> preloaded.ForkedProcess:
    command = [sys.executable, "-c", ROGUE, address, what, str(folder / "evil")]
    return preloaded.ForkedProcess(command, env={**os.environ, "PYTHONPATH": python_path()})


@pytest.mark.parametrize(
    ("entries", "min_ranks", "said"),
    [
        ({"length": 5}, 1, "sampler: length of data is '5' on it, '4' on others"),
        ({"seed": 1}, 1, "sampler: seed is '1' on it, '0' on others"),
        ({"kind": torch.optim.Adam}, 1, r"entry 'optimizer' is 'Adam of \[2\] parameters' on it"),
        ({}, 2, "min_ranks is '2' on it, '1' on others"),
    ],
)
def test_what_ranks_must_agree_on(entries: dict[str, Any], min_ranks: int, said: str):
    def terms(min_ranks: int, length=4, seed=0, kind=torch.optim.SGD) -> dict[str, str]:
        net = nn.Linear(2, 2)
        sampler = elastic.Sampler(range(length), global_batch=2, seed=seed)
        state = elastic.State(net=net, optimizer=kind(net.parameters()), sampler=sampler)
        return _rank_state.terms_of(state, min_ranks)

    assert _rank_state.difference(terms(1), "it", terms(1), "others") == ""
    found = _rank_state.difference(terms(min_ranks, **entries), "it", terms(1), "others")
    assert re.match(said, found), found


def test_one_of_the_first_is_refused(tmp_path: Path):
    script = ["--wrong=keys", "--worker=1", "--steps=20", "--rejoin-timeout=8"]
    with run_loop(tmp_path, "--nproc-per-node=3", script=script) as job:
        job.end()
        output = job.output()
    # Ranks depend on the order of arrival. If the wrong worker is first, the others report the
    # error.
    assert "has entry 'more'" in output
    assert output.count("ArgumentError: ringdist: elastic: ") in (2, 4), output
    assert "trained 20 steps" in output


def test_an_exception_of_one_rank_is_its_own(tmp_path: Path):
    script = ["--wrong=raise", "--worker=1", "--steps=20", "--pause=1"]
    with run_loop(tmp_path, "--nproc-per-node=3", script=script) as job:
        job.wait_for(lambda: job.events("worker_ended", worker=1))  # before the others finish
        job.hurry()
        assert job.end() == 0, job.output()
        # Each error is in a worker's log, and the launcher shows it.
        assert job.output().count("ValueError: a mistake of the user's") == 2
        assert job.output().count("trained 20 steps, 2 ranks") == 4, job.output()


def test_ranks_that_differ_are_named(tmp_path: Path):
    owed = tmp_path / "owed"
    script = ["--wrong=drift", "--worker=1", "--steps=1000000", f"--owed={owed}"]
    with run_loop(tmp_path / "job", "--nproc-per-node=3", script=script) as job:
        pids = job.wait_for_size(3)
        job.wait_for(lambda: any(one["step"] > loop.DRIFT_AT + 1 for one in _lines(owed)))
        [started] = job.events("worker_started", worker=1)
        os.kill(next(pid for pid in pids.values() if pid != started["worker_pid"]), signal.SIGKILL)
        assert job.end() == 1, job.output()
        assert "net['bias'] is not the same on ranks [0] and ranks [1]" in job.output()


def test_without_copies_collectives_after_the_optimizer_are_noticed(tmp_path: Path):
    owed = tmp_path / "owed"
    # A step is mostly the pause between the optimizer and a collective.
    script = ["--wrong=late", "--no-copy", "--steps=1000000", "--pause=2", f"--owed={owed}"]
    with run_loop(tmp_path / "job", "--nproc-per-node=2", script=script) as job:
        pids = job.wait_for_size(2)
        job.wait_for(lambda: any(one["step"] > 0 for one in _lines(owed)))
        time.sleep(1)
        os.kill(pids[1], signal.SIGKILL)
        assert job.end() == 1, job.output()
        assert "State(copy=False): ['weight'] of net has changed since" in job.output()


def test_too_few_are_waited_for_and_the_state_is_saved(tmp_path: Path):
    saved = tmp_path / "saved"
    script = ["--steps=1000000", "--min-ranks=2", "--rejoin-timeout=8", f"--checkpoint={saved}"]
    with run_loop(tmp_path, "--nproc-per-node=2", script=script) as job:
        os.kill(job.wait_for_size(2)[0], signal.SIGKILL)
        assert job.end() == 1, job.output()
        assert (
            "1 of 2 ranks are there, and the next step has waited for more for 8 s" in job.output()
        )
        assert f"the state is in {saved}" in job.output()
    assert list(saved.glob("step-*"))


def _total(lines: list[dict[str, Any]], what: str, generation: str, step: int) -> float | None:
    """Returns the residuals of all ranks together, or None if not all have reported them."""
    mine = [
        one
        for one in lines
        if (one["what"], one["generation"], one["step"]) == (what, generation, step)
    ]
    return sum(one["owed"] for one in mine) if mine and len(mine) == mine[0]["size"] else None


@pytest.mark.parametrize("how", ["join", "leave"])
def test_the_residual_does_not_change(tmp_path: Path, how: str):
    """Lets a rank come or leave. The sum of residuals / size must stay the same."""
    owed = tmp_path / "owed"
    steps = 250 if how == "leave" else 400  # time for another worker to start
    script = [f"--steps={steps}", "--pause=0.1", "--codec=int4", f"--owed={owed}"]
    with run_loop(tmp_path / "job", "--nproc-per-node=3", script=script) as job:
        pids = job.wait_for_size(3)
        if how == "leave":
            job.wait_for(lambda: len(_lines(owed)) > 30)
            os.kill(pids[1], signal.SIGTERM)
            job.wait_for_size(2)
            job.hurry()
            assert job.end() == 0, job.output()
        else:
            job.wait_for(lambda: len(_lines(owed)) > 30)
            with run_loop(tmp_path / "more", f"--rdzv={job.address}", script=script) as more:
                job.wait_for(lambda: job.events("generation", size=4))
                job.hurry()
                more.hurry()
                assert job.end() == 0, job.output()
                assert more.end() == 0, more.output()
    lines = _lines(owed)
    generations = sorted({one["generation"] for one in lines}, key=lambda one: (len(one), one))
    changes = 0
    for before, after in itertools.pairwise(generations):
        step = min(one["step"] for one in lines if one["generation"] == after)
        old = _total(lines, "committed", before, step)
        new = _total(lines, "entered", after, step)
        assert new is not None
        if old is not None:  # otherwise not all had committed it themselves
            assert abs(new - old) <= 1e-6 * max(1, abs(old)), (before, after, old, new)
            changes += 1
    assert changes or len(generations) > 1, generations


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in folder.glob("*.jsonl")
        for line in file.read_text().splitlines()
        if line.endswith("}")
    ]


def test_without_a_launcher():
    with pytest.raises(ArgumentError, match=r"RINGDIST_RDZV is not set.*Launch with: python -m"):
        elastic.init()
    train = elastic.run(lambda state: None)
    with pytest.raises(ArgumentError, match=r"call elastic.init\(\) first"):
        train(elastic.State())


@pytest.mark.parametrize(
    ("variables", "named", "said"),
    [
        (
            {"RINGDIST_RDZV": "host"},
            {},
            'RINGDIST_RDZV must be "host:port" or "ringdist://host:port", got \'host\'',
        ),
        ({"RINGDIST_MIN_RANKS": "0"}, {}, "RINGDIST_MIN_RANKS must be a whole number above 0"),
        ({"RINGDIST_MAX_RANKS": "2"}, {"min_ranks": 3}, "min_ranks=3 is more than --max-ranks=2"),
        (
            {"RINGDIST_MAX_RANKS": "2", "RINGDIST_START_RANKS": "3"},
            {},
            "RINGDIST_START_RANKS=3 is more than RINGDIST_MAX_RANKS=2",
        ),
        ({}, {"min_ranks": 0}, "min_ranks must be 1 or more, got 0"),
        ({}, {"rejoin_timeout": 0}, "rejoin_timeout must be above 0"),
        ({}, {"rejoin_timeout": float("inf")}, "rejoin_timeout must be at most .* got inf"),
        ({}, {"timeout": float("nan")}, "timeout must be at most .* got nan"),
    ],
)
def test_bad_settings(variables: dict[str, str], named: dict[str, Any], said: str):
    arguments = {
        "min_ranks": None,
        "rejoin_timeout": 1.0,
        "timeout": 1.0,
        "checkpoint": "folder",
        "options": None,
        **named,
    }
    with pytest.raises(ArgumentError, match=said):
        _settings.read(**arguments, environment={"RINGDIST_RDZV": "host:1", **variables})


def test_several_ranks_under_one_torchrun_are_warned():
    variables = {"RINGDIST_RDZV": "host:1", "TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "4"}
    with pytest.warns(UserWarning, match="4 ranks under one torchrun"):
        _settings.read(None, 1.0, 1.0, "folder", None, variables)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nproc-per-node=0", "x.py"], "must be a whole number, 1 or more, got '0'"),
        (["--nproc-per-node=four", "x.py"], "must be a whole number, 1 or more, got 'four'"),
        (["--grace=nan", "x.py"], "must be a number of seconds, 0 or more, got 'nan'"),
        (["--job=", "x.py"], "must not be empty; is a variable of the shell unset?"),
        (
            ["--rdzv=nowhere", "x.py"],
            'the address must be "host:port" or "ringdist://host:port", got \'nowhere\'',
        ),
        ([], "the following arguments are required: SCRIPT"),
    ],
)
def test_bad_launches(options: list[str], said: str):
    command = ["-m", "torch_ringdist", "run", *options]
    done = preloaded.run(command, env=os.environ, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_host_without_an_address_is_named():
    with pytest.raises(OSError, match=r"no\.such\.host\.invalid: "):
        addresses.is_here("no.such.host.invalid")
