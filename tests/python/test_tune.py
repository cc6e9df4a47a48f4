"""`python -m torch_ringdist tune`: constants derived from times, and a short real run of each
kind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.launched import preloaded
from support.pool import free_port

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.net import hosts as net  # noqa: E402
from benchmarks.net.launch import torchrun  # noqa: E402
from torch_ringdist import __main__ as cli  # noqa: E402
from torch_ringdist import _tune_hosts, _tune_rank  # noqa: E402
from torch_ringdist._costs import Costs, Link  # noqa: E402
from torch_ringdist._tune_fit import SMALL, Kind, Model, Sample, fit, without_calls  # noqa: E402
from torch_ringdist._tune_hosts import Between, Launch  # noqa: E402

SIZES = (4 << 10, 16 << 10, 64 << 10, 252 << 10)
BUILT_IN = Link(200, 40e9, 10e9, 300, 72)
BUILT_IN_BETWEEN = Link(30_000, 1.2e9, 3e9, 3000, 72)


CALL = 2500.0  # nanoseconds of Python and the engine


def measured_by(model: Model, pairs: int = 1, noise: float = 0.0) -> list[Sample]:
    """Returns the times that the model predicts, with random deviations."""
    kinds = (Kind.STREAM, Kind.BOTH, *((Kind.CROWD,) if pairs > 1 else ()))
    alone = [Sample(kind, size, 0.0) for size in SIZES for kind in kinds]
    found = [replace(each, pairs=pairs if each.kind is Kind.CROWD else 1) for each in alone]
    found = [replace(each, ns=model.predict(each)) for each in found]
    hop = model.predict(Sample(Kind.HOP, SMALL, 0.0))
    found.append(Sample(Kind.ONE_HOP, SMALL, CALL + hop))
    found.append(Sample(Kind.TWO_HOPS, SMALL, CALL + 2 * hop))
    dice = random.Random(1)
    return [replace(each, ns=each.ns * dice.uniform(1 - noise, 1 + noise)) for each in found]


def model(inside: bool, latency: float, line: float, copy: float, message: float) -> Model:
    """Returns a model. `line` and `copy` are bytes per second."""
    return Model(latency, 1e9 / line, 1e9 / copy, message, 72, inside)


@pytest.mark.parametrize(
    ("name", "sample", "expected"),
    [
        ("ends take longer", Sample(Kind.STREAM, 1000, 0), 300 + 1000),
        ("both ways", Sample(Kind.BOTH, 1000, 0), 2 * (300 + 1000)),
        ("four pairs fill the line", Sample(Kind.CROWD, 1000, 0, 4), 2 * 4 * 1072 * 0.5),
        ("a hop", Sample(Kind.HOP, 8, 0), 2 * 308 + 200 + 80 * 0.5),
    ],
)
def test_what_constants_predict(name: str, sample: Sample, expected: float) -> None:
    """The ends take 300 ns and 1 ns a byte, a link half a nanosecond a byte
    (base/network_costs.h)."""
    assert model(True, 200, 2e9, 1e9, 300).predict(sample) == pytest.approx(expected), name


def test_what_a_call_takes_is_taken_out() -> None:
    true = model(True, 200, 2e9, 1e9, 300)
    *others, hop = without_calls(measured_by(true))
    assert (hop.kind, hop.ns) == (Kind.HOP, pytest.approx(2 * 308 + 200 + 80 * 0.5))
    assert {each.kind for each in others} == {Kind.STREAM, Kind.BOTH}


def test_hops_that_noise_has_swallowed_say_nothing() -> None:
    """Two hops took no longer than one, but that does not mean that messages are free."""
    busy = [
        replace(each, ns=CALL) if each.kind is Kind.TWO_HOPS else each
        for each in measured_by(model(True, 200, 2e9, 1e9, 300))
    ]
    found = fit(busy, BUILT_IN, True).model
    assert Kind.HOP not in {each.kind for each in without_calls(busy)}
    assert 100 < found.latency < 400
    assert 150 < found.message < 600


def test_a_line_between_hosts_has_two_ways() -> None:
    slow = model(False, 200, 0.25e9, 1e9, 300)
    assert slow.predict(Sample(Kind.BOTH, 1000, 0)) == pytest.approx(1072 * 4)
    assert replace(slow, inside=True).predict(Sample(Kind.BOTH, 1000, 0)) == 2 * 1072 * 4


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize(
    ("inside", "true"),
    [
        (True, (150, 30e9, 18e9, 400)),  # memory is the limit if all use it
        (True, (400, 12e9, 10e9, 250)),
        (False, (20_000, 1.2e9, 2e9, 2000)),  # 10 Gb/s: both ends are the limit
        (False, (50_000, 0.12e9, 3e9, 3000)),  # 1 Gb/s: the line is the limit
    ],
)
def test_the_fit_finds_what_made_the_times(inside: bool, true: tuple, noise: float) -> None:
    made_by = model(inside, *true)
    built_in = BUILT_IN if inside else BUILT_IN_BETWEEN
    found = fit(measured_by(made_by, pairs=2 if inside else 1, noise=noise), built_in, inside)
    link = found.model.link()
    within = 0.1 + 4 * noise
    assert link.bytes_per_second == pytest.approx(true[1], rel=within)
    assert link.copied_per_second == pytest.approx(true[2], rel=within)
    assert link.per_message_ns == pytest.approx(true[3], rel=within)
    # The latency of a hop is itself a difference, so its error is relative to a whole call.
    apart = noise * 3 * (CALL + 2 * made_by.predict(Sample(Kind.HOP, SMALL, 0.0)))
    assert link.latency_ns == pytest.approx(true[0], rel=within, abs=apart)
    assert link.framing_bytes == 72
    assert found.typical < noise + 0.02
    assert abs(found.off(found.worst)) < 2 * noise + 0.04


def test_what_no_time_depends_on_stays_as_it_is_built_in() -> None:
    """Behind a slow line, the costs of the ends cannot be measured."""
    slow = measured_by(model(False, 30_000, 12e6, 3e9, 3000))
    link = fit(slow, BUILT_IN_BETWEEN, False).model.link()
    assert link.bytes_per_second == pytest.approx(12e6, rel=0.01)
    assert link.copied_per_second == pytest.approx(3e9, rel=0.2)
    assert link.per_message_ns == pytest.approx(3000, rel=0.2)


def test_a_memory_is_no_faster_than_what_was_put_in() -> None:
    quick = measured_by(model(True, 200, 1e15, 10e9, 300))
    link = fit(quick, BUILT_IN, True).model.link()
    assert link.bytes_per_second <= 2.001 * link.copied_per_second


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Launch(0, 1, True)),
        ({"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "3", "LOCAL_RANK": "0"}, Launch(1, 3, True)),
        ({"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "LOCAL_RANK": "1"}, Launch(0, 1, False)),
    ],
)
def test_where_torchrun_put_it(variables: dict[str, str], expected: Launch) -> None:
    assert Launch.of(variables) == expected


@pytest.mark.parametrize(
    ("transports", "key", "expected"),
    [
        ("", "", "ucx"),
        ("shm,ucx", "", "ucx"),
        ("shm,tcp", "", "tcp"),
        ("tcp,ucx", "", "ucx"),
        ("", "job.key", "tcp"),
    ],
)
def test_the_transport_between_hosts_is_that_of_the_job(
    monkeypatch: pytest.MonkeyPatch, transports: str, key: str, expected: str
) -> None:
    monkeypatch.setenv("RINGDIST_TRANSPORT", transports)
    monkeypatch.setenv("RINGDIST_KEY_FILE", key)
    for name in ("init_process_group", "barrier", "new_group"):
        monkeypatch.setattr(dist, name, lambda *_, **__: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(_tune_hosts, "set_aside", lambda: os.environ.pop("RINGDIST_TRANSPORT"))
    forced: list[str] = []
    monkeypatch.setattr(
        _tune_hosts, "Prober", lambda ranks, transport, limit: forced.append(transport)
    )
    Between(Launch(5, 6, True)).measure(1, lambda *_: None)  # host 5 takes part in no pair
    assert forced == [expected] * 4


def tune(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    command = ["-m", "torch_ringdist", "tune", *words]
    return preloaded.run(command, env={**os.environ, **(environment or {})}, timeout=100)


@pytest.mark.alone
def test_a_short_run_writes_a_file_that_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    # The variables of a training must not affect it, and the file need not exist yet.
    environment = {
        "RINGDIST_COSTS": str(path),
        "RINGDIST_ALGORITHM": "direct",
        "RINGDIST_SEGMENT_BYTES": "8192",
    }
    words = ["--seconds", "1", "--rate", "1gbit", "--latency", "50us", "--details"]
    done = tune(*words, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    costs = Costs.from_file(path)
    assert costs.between == Costs.built_in(1e9, 50_000).between
    inside = costs.inside
    # The limits are orders of magnitude, for any machine under any load.
    assert 1 <= inside.latency_ns < 1e7
    assert 1 <= inside.per_message_ns < 1e6
    assert 1e7 < inside.copied_per_second < 1e13
    assert inside.bytes_per_second > 1e7
    assert costs.made["between"] == "not measured: as built in, for 1gbit and 50us"
    assert "processes on" in costs.made["inside"]
    for words in ("the fit is off by", "stream of 252 KiB", f"written: {path}", "RINGDIST_COSTS="):
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.alone
@pytest.mark.hosts
def test_on_two_hosts_the_line_between_them_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    command = ["-m", "torch_ringdist", "tune", "--out", str(path), "--seconds", "4"]
    with net.Hosts(2, "200mbit") as hosts:
        # One of the two ranks of a host takes part.
        assert torchrun(hosts, command, tmp_path / "logs", per_host=2) == 0
    costs = Costs.from_file(path)
    # The rate is 200 Mb/s without headers. Some bytes pass the token buckets at once.
    assert costs.between.bytes_per_second == pytest.approx(23.9e6, rel=0.15)
    assert costs.inside.bytes_per_second > 10 * costs.between.bytes_per_second
    assert costs.made["between"].startswith("1 of 1 pairs of hosts, by ")
    assert "Warning" not in (tmp_path / "logs" / "host1.log").read_text()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--rate", "fast"], "--rate: expected bits per second as 100mbit, 1gbit or 10gbit"),
        (["--latency", "5 apples"], "--latency: expected a time as 200ns, 50us or 1ms"),
        (["--seconds", "0"], "--seconds: expected 1 to 3600, got 0.0"),
        (["--seconds", "nan"], "--seconds: expected 1 to 3600, got nan"),
        (["--out", "/nonexistent/costs.json"], "'/nonexistent/costs.json' cannot be written: No"),
        (["--seconds", "inf"], "--seconds: expected 1 to 3600, got inf"),
        (["--out", "/"], "--out: '/' cannot be written: it is no regular file"),
        (["--out", "/dev/null"], "--out: '/dev/null' cannot be written: it is no regular file"),
    ],
)
def test_what_is_not_accepted_is_refused_before_anything_is_measured(
    words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def must_not(*_: object) -> None:
        raise AssertionError("it measures")

    monkeypatch.setattr("torch_ringdist._tune.inside", must_not)
    assert cli.main(["tune", *words]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("torch_ringdist tune: ")
    assert problem in said.err


@pytest.mark.parametrize(
    ("variable", "problem"),
    [("", "--out: 'ringdist-costs.json' cannot"), ("/no/x", "RINGDIST_COSTS: '/no/x' cannot")],
)
def test_a_file_that_cannot_be_written_is_named_by_its_option_or_variable(
    variable: str, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir("/proc")
    monkeypatch.setenv("RINGDIST_COSTS", variable)
    assert cli.main(["tune"]) == 1
    assert problem in capsys.readouterr().err


def test_a_rate_is_refused_where_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    assert cli.main(["tune", "--rate", "1gbit"]) == 1
    assert "--rate: several hosts take part" in capsys.readouterr().err


def test_a_process_that_fails_is_told(tmp_path: Path) -> None:
    """Runs with less memory than a group needs."""
    done = tune("--out", str(tmp_path / "x"), environment={"RINGDIST_MEMORY": "3"})
    assert done.returncode == 1
    assert "torch_ringdist tune: process" in done.stderr
    assert "RINGDIST_MEMORY" in done.stderr
    assert not (tmp_path / "x").exists()


def test_ctrl_c_ends_it_in_a_word(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "torch_ringdist", "tune", "--out", str(tmp_path / "x")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background may have been started with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(children.read_text().split()) < 3:  # two ranks, and multiprocessing's own
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    while process.poll() is None:  # it may ignore the first one while it starts the last of them
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(1)
    errors = process.communicate()[1]
    assert process.returncode == 130, errors
    assert "Traceback" not in errors and "torch_ringdist tune: interrupted" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_second_ctrl_c_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the signal while Python ends, which restores the default action: to end the
    process."""

    def interrupted(_args: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr("torch_ringdist._tune.run", interrupted)
        assert cli.main(["tune", "--out", "x"]) == 130
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


LONELY = """
from datetime import timedelta
from torch_ringdist import _tune_hosts
_tune_hosts._LIMIT = timedelta(seconds=3)
launch = _tune_hosts.Launch(0, 2, True)
with _tune_hosts.naming(launch):
    _tune_hosts.Between(launch)
"""


def test_a_host_that_never_comes_is_missed_at_once() -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = preloaded.run(["-c", LONELY], env={**os.environ, **address}, timeout=110)
    assert done.returncode == 1
    assert "TuneError: host 0 of 2: " in done.stderr, done.stderr


def test_it_explains_itself(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["tune", "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    for words in ("RINGDIST_COSTS", "torchrun --nnodes 2", "between hosts", "--rate"):
        assert words in said


def test_variables_that_are_set_aside_exist() -> None:
    import torch_ringdist

    known = torch_ringdist.info()["variables"]
    for name in _tune_rank.SET_ASIDE:
        assert f"RINGDIST_{name}" in json.dumps(known)
