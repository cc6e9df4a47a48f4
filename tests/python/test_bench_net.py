"""Hosts of `make bench-net`: they come, they are shaped, and nothing of them stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.net import hosts as net  # noqa: E402
from benchmarks.net.operations import least_bytes  # noqa: E402
from benchmarks.net.variants import Variant  # noqa: E402

REASON = net.why_not()
with_hosts = pytest.mark.skipif(REASON is not None, reason=str(REASON))

HOLD_HOSTS = """
import subprocess
from benchmarks.net.hosts import Hosts, unwind_on_signals
unwind_on_signals()
with Hosts(2, "1gbit") as hosts:
    subprocess.Popen([*hosts.enter(1), "sleep", "1000"], start_new_session=True)
    print("ready", flush=True)
    input()
"""


def bench_net(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "benchmarks.net", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def namespaces_of(pid: int) -> list[str]:
    names = [line.split()[0] for line in net.call("ip", "netns", "list").splitlines()]
    return [name for name in names if name.startswith(f"{net.PREFIX}-{pid}-")]


def holder() -> subprocess.Popen:
    """A process that has hosts, with a process on one of them, until its stdin says something."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_HOSTS],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    assert len(namespaces_of(process.pid)) == 3  # a switch, two hosts
    return process


@with_hosts
def test_allreduce_over_two_hosts(tmp_path: Path) -> None:
    words = ["--hosts", "2", "--rate", "1gbit", "--sizes", "1M", "--seconds", "0.4"]
    words += ["--rounds", "2", "--variants", "gloo", "ringdist", "--out", str(tmp_path)]
    done = bench_net(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "allreduce-2hosts-1gbit.json").read_text())
    rows = {row["variant"]: row for row in written["rows"]}
    assert list(rows) == ["tcp", "gloo", "ringdist"]
    for row in rows.values():
        assert row["payload"] == 1 << 20  # 2 (N - 1) / N times the size
        # 8 bits per nanosecond are 1 Gb/s; the first bytes after a pause may pass faster.
        assert 8 * row["sent"] / row["times"]["median"] < 1.05, row
        assert abs(row["excess"]) < 0.05, row
    assert (tmp_path / "allreduce-2hosts-1gbit-1MiB.png").stat().st_size > 1000


@with_hosts
def test_operations_over_two_hosts(tmp_path: Path) -> None:
    words = ["--hosts", "2", "--rate", "1gbit", "--sizes", "1M", "--rounds", "1"]
    words += ["--operations", "all_reduce", "broadcast", "--variants", "ringdist"]
    done = bench_net(*words, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "operations-2hosts-1gbit.json").read_text())
    assert [row["operation"] for row in written["rows"]] == ["all_reduce", "broadcast"]
    for row in written["rows"]:
        assert row["least_bytes"] == 1 << 20
        assert len(row["times"]) == 3
        assert 0 < row["of_wire"] < 2, row  # a bucket that is full lets a burst pass faster


def test_operations_have_no_codecs(tmp_path: Path) -> None:
    words = ["-m", "benchmarks.net.operations", "--operations", "broadcast", "--sizes", "1M"]
    words += ["--variants", "ringdist:int8", "--rounds", "1", "--links", "1gbit cubic"]
    words += ["--per-host", "1", "--json", str(tmp_path / "out.json")]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--variants: ringdist:int8: operations are timed without codecs" in done.stderr


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("all_reduce", 75), ("broadcast", 50), ("all_gather", 37.5), ("all_to_all", 75)],
)
def test_least_bytes_of_four_hosts(operation: str, expected: float) -> None:
    assert least_bytes(operation, 50, hosts=4, per_host=2) == expected


@with_hosts
def test_a_failing_script_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, sys\n"
        "print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], *sys.argv[1:])\n"
        "sys.exit('rank ' + os.environ['RANK'] + ' gave up')\n"
    )
    words = ["--hosts", "2", "--rate", "none", "--out", str(tmp_path), "--", str(script), "--word"]
    done = bench_net(*words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rank 0 of 2 --word" in done.stdout
    assert "rank 1 gave up" in done.stderr  # host 1 writes to a log


@with_hosts
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_removes_its_hosts(number: signal.Signals) -> None:
    process = holder()
    process.send_signal(number)
    assert process.wait(20) != 0
    assert namespaces_of(process.pid) == []


@with_hosts
def test_the_next_run_removes_what_a_killed_one_left() -> None:
    process, other = holder(), holder()
    process.kill()
    process.wait()
    assert len(namespaces_of(process.pid)) == 3
    net.remove_leftovers()
    assert namespaces_of(process.pid) == []
    assert len(namespaces_of(other.pid)) == 3  # its process lives
    other.communicate("\n", timeout=20)
    assert namespaces_of(other.pid) == []


def test_without_root_it_skips() -> None:
    if os.geteuid() == 0 and REASON is None:
        # An empty PATH has no ip, which is checked the same way.
        command = [sys.executable, "-m", "benchmarks.net"]
        environment = {**os.environ, "PATH": "/nonexistent"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    else:
        done = bench_net()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("skipped: ")


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("tcp", 96.0),
        ("gloo", 96.0),
        ("gloo+fp16", 48.0),
        ("ringdist/direct", 96.0),
        ("ringdist:fp16", 48.0),
        ("ringdist:int8", 24 * 8.125 / 8),
        ("ringdist:onebit", 24 * 1.0625 / 8),
        ("ringdist:onebit+h>int4", 12 * (1.0625 + 4.125) / 8),
        ("ringdist:topk:0.01", 12 * (1 + 4) * 10 * 4 / 1024),
        ("ringdist:lossless", None),
    ],
)
def test_bytes_that_a_variant_should_send(text: str, payload: float | None) -> None:
    """For 16 fp32 elements on 4 ranks: 12 leave each rank, as contributions and again as sums."""
    variant = Variant.parse(text)
    assert variant.payload(16, 4, 4) == pytest.approx(payload)


@pytest.mark.parametrize(
    "text", ["", "gloo:int4", "gloo/ring", "ringdist:int4+fp16", "tcp+fp16", "ringdist:", "a b"]
)
def test_a_bad_variant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"variant '{text}'".replace("+", r"\+")):
        Variant.parse(text)
