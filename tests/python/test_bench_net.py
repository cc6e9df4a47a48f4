"""Hosts of `make bench-net`: they are created, their rate is limited, and nothing of them
remains."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.job_key import needs_tls, write_key

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.host.launch import has_openmpi  # noqa: E402
from benchmarks.host.operations import OPERATIONS  # noqa: E402
from benchmarks.net import hosts as net  # noqa: E402
from benchmarks.net import sockets  # noqa: E402
from benchmarks.net.__main__ import parse_arguments  # noqa: E402
from benchmarks.net.bound import coded_bytes, least_bytes  # noqa: E402
from benchmarks.net.job import Job  # noqa: E402
from benchmarks.net.layout import Layout  # noqa: E402
from benchmarks.net.progress import Progress  # noqa: E402
from benchmarks.net.rows import rows_of, table  # noqa: E402
from benchmarks.net.variants import Variant  # noqa: E402

pytestmark = pytest.mark.tools

REASON = net.why_not()

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
    """Returns a process that keeps hosts, with a process on one of them, until its stdin has
    data."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_HOSTS],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    assert len(namespaces_of(process.pid)) == 3  # a switch and two hosts
    return process


@pytest.mark.hosts
def test_allreduce_over_two_hosts(tmp_path: Path) -> None:
    words = ["allreduce", "--hosts", "2", "--rate", "1gbit", "--sizes", "1M", "--seconds", "0.4"]
    words += ["--rounds", "2", "--variants", "gloo", "ringdist", "--out", str(tmp_path)]
    done = bench_net(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "allreduce-2hosts-1gbit.json").read_text())
    rows = {row["variant"]: row for row in written["rows"]}
    assert list(rows) == ["tcp", "gloo", "ringdist"]
    for row in rows.values():
        assert row["payload"] == 1 << 20  # 2 (N - 1) / N times the size
        # 8 bits per nanosecond are 1 Gb/s. The first bytes after a pause may be faster.
        assert 8 * row["sent"] / row["times"]["median"] < 1.05, row
        assert abs(row["excess"]) < 0.05, row
    assert (tmp_path / "allreduce-2hosts-1gbit-1MiB.png").stat().st_size > 1000


def operations(tmp_path: Path, layout: str, *words: str) -> dict[tuple[str, str], dict]:
    """Returns the rows of one short run at 1 Gb/s, by operation and variant."""
    shared = ["--layouts", layout, "--rate", "1gbit", "--rounds", "1", "--seconds", "0.1"]
    done = bench_net(*shared, *words, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / f"operations-{layout}-1gbit.json").read_text())
    assert (tmp_path / f"operations-{layout}-1gbit-times.png").stat().st_size > 1000
    return {(row["operation"], row["variant"]): row for row in found["rows"]}


@pytest.mark.hosts
def test_operations_over_hosts_that_are_unequal(tmp_path: Path) -> None:
    words = ["--operations", "all_reduce", "gather", "barrier", "--sizes", "1M"]
    rows = operations(tmp_path, "1+2", *words, "--variants", "gloo", "ringdist", "ringdist:int4")
    all_of = ("all_reduce", "gather", "barrier")
    plain = [(name, variant) for name in all_of for variant in ("gloo", "ringdist")]
    assert set(rows) == {*plain, ("all_reduce", "ringdist:int4")}
    for row in rows.values():
        assert 0 < row["minimum"] <= row["median"]
        assert 0 < row["cpu"] < 3 * row["median"] * row["calls"]  # three ranks
    reduced = rows["all_reduce", "ringdist"]
    assert reduced["least_bytes"] == 1 << 20
    # Full token buckets let a burst pass faster, once per round.
    assert 0.1 < reduced["of_wire"] < 1.3, reduced
    assert rows["all_reduce", "ringdist:int4"]["least_bytes"] == (1 << 20) * 4.125 / 32
    assert rows["barrier", "gloo"]["of_wire"] is None


@pytest.mark.hosts
@pytest.mark.skipif(not has_openmpi(), reason="no mpi4py and OpenMPI")
def test_openmpi_takes_part_on_each_host(tmp_path: Path) -> None:
    words = ["--operations", "all_reduce", "reduce", "--sizes", "1M"]
    rows = operations(tmp_path, "2x1", *words, "--variants", "openmpi", "ringdist")
    assert {variant for _, variant in rows} == {"openmpi", "ringdist"}
    # The data went over the wire, not through this machine's memory.
    assert 0.02 < rows["all_reduce", "openmpi"]["of_wire"] < 1.3


def test_a_pair_of_codecs_is_for_what_is_summed() -> None:
    from benchmarks.net.peers import Coded

    served = [
        name
        for name in ("all_reduce", "reduce_scatter", "all_gather", "gather")
        if Coded(Variant.parse("ringdist:onebit>int4"), None).serves(name)
    ]
    assert served == ["all_reduce", "reduce_scatter"]
    assert Coded(Variant.parse("ringdist:int4"), None).serves("all_gather")


@pytest.mark.hosts
def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    words = ["--operations", "barrier", "--sizes", "8", "--variants", "gloo"]
    first = operations(tmp_path, "2x1", *words)
    assert operations(tmp_path, "2x1", *words) == first
    fresh = operations(tmp_path, "2x1", *words, "--fresh")
    assert fresh != first and set(fresh) == set(first)


@pytest.mark.hosts
def test_ranks_that_fail_are_shown(tmp_path: Path) -> None:
    """Makes the ranks fail to create their group, by an unknown algorithm."""
    words = ["--operations", "barrier", "--sizes", "8", "--variants", "ringdist/nonsense"]
    done = bench_net("--layouts", "2x1", "--rate", "none", *words, "--out", str(tmp_path))
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert "[1/1] 2x1, none, 8 B: status 1" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--variants", "gloo+fp16"], "--variants: gloo+fp16: operations have no casts"),
        (["--variants", "tcp"], "--variants: tcp: operations have no casts, and tcp is always"),
        (["allreduce", "--variants", "openmpi"], "--variants: openmpi: allreduce is timed without"),
        (["--layouts", "4"], "argument --layouts: '4': expected 2 to 32 hosts of 1 rank or more"),
        (["--layouts", "1+0"], "argument --layouts: '1+0': expected 2 to 32 hosts"),
        (["--layouts", "4*2"], "argument --layouts: '4*2': expected hosts x ranks of each"),
        (["--rate", "fast"], "argument --rate: 'fast': expected none, or a rate as 100mbit"),
        (["--sizes", "7"], "argument --sizes: '7': expected a multiple of 4"),
        (["--rounds", "0"], "--rounds and --seconds: expected more than 0"),
        (["--seconds", "inf"], "--rounds and --seconds: expected more than 0"),
        (["--hosts", "4", "--layouts", "2x2"], "--hosts: --layouts say how many hosts there are"),
        (["--nproc-per-host", "2"], "--nproc-per-host: is for --hosts"),
        (["--hosts", "32", "--nproc-per-host", "3"], "64 ranks at most"),
    ],
)
def test_bad_words_are_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "per_host", "again"),
    [("4x1", (1, 1, 1, 1), "4x1"), ("2+2", (2, 2), "2x2"), ("1+2+3", (1, 2, 3), "1+2+3")],
)
def test_a_layout(text: str, per_host: tuple[int, ...], again: str) -> None:
    layout = Layout.parse(text)
    assert layout.per_host == per_host
    assert layout.text == again
    assert (layout.hosts, layout.world) == (len(per_host), sum(per_host))


def test_ranks_are_numbered_host_by_host() -> None:
    layout = Layout.parse("1+2+3")
    assert [layout.host_of(rank) for rank in range(6)] == [0, 1, 1, 2, 2, 2]
    assert [rank for rank in range(6) if layout.is_first(rank)] == [0, 1, 3]


@pytest.mark.parametrize(
    ("operation", "equal", "unequal"),
    [
        ("all_reduce", 75, 50 * 4 / 3),
        ("broadcast", 50, 50),
        ("reduce", 50, 50),
        ("all_gather", 37.5, 50 * 5 / 6),  # into the host of one rank
        ("reduce_scatter", 37.5, 50 * 5 / 6),  # out of the host of one rank
        ("all_to_all", 75, 50 * 9 / 6),  # the host of three ranks, with three elsewhere
        ("gather", 37.5, 50 * 5 / 6),  # rank 0 is alone on its host
        ("scatter", 37.5, 50 * 5 / 6),
        ("barrier", 0, 0),
    ],
)
def test_least_bytes(operation: str, equal: float, unequal: float) -> None:
    """Covers four hosts of two ranks, and hosts of one, two and three ranks."""
    assert operation in OPERATIONS
    assert least_bytes(operation, 50, Layout.parse("4x2")) == pytest.approx(equal)
    assert least_bytes(operation, 50, Layout.parse("1+2+3")) == pytest.approx(unequal)


@pytest.mark.parametrize(
    ("operation", "codec", "expected"),
    [
        ("all_reduce", "int4", 100 * 4.125 / 32),
        ("all_reduce", "onebit>int4", 100 * (1.0625 + 4.125) / 64),
        ("all_gather", "int8", 50 * 8.125 / 32),
        ("reduce_scatter", "onebit>int4", 50 * 1.0625 / 32),
        ("all_reduce", "lossless", None),
    ],
)
def test_least_bytes_of_a_codec(operation: str, codec: str, expected: float | None) -> None:
    variant = Variant.parse(f"ringdist:{codec}")
    found = coded_bytes(operation, 100, Layout.parse("2x2"), variant)
    assert found == (None if expected is None else pytest.approx(expected))


def test_rows_of_what_ranks_found() -> None:
    job = Job("1gbit", "cubic", "2x2", 1 << 20, ("all_reduce",), ("gloo", "ringdist"), 1.0, 2)
    gloo = {"operation": "all_reduce", "variant": "gloo", "times": [16_000_000] * 2, "cpu": 8e6}
    times = [8_000_000, 10_000_000, 12_000_000, 10_000_000]
    ours = {**gloo, "variant": "ringdist", "times": times}
    result = {
        "settings": json.loads(job.text()),
        "socket_times": {
            "both": [9_000_000, 8_000_000, 7_000_000],
            "one_way": [8_500_000],
        },
        "socket_bytes": 1 << 20,
        "timed": [gloo, ours],
    }
    assert Job.of(job.text()) == job
    gloo, ours = rows_of(result)
    assert (gloo.of_wire, ours.of_wire) == (pytest.approx(0.5), pytest.approx(0.8))
    assert (ours.calls, ours.minimum, ours.median, ours.cpu) == (4, 8e6, 10e6, 2e6)
    text = table([gloo, ours])
    assert "2x2, 1gbit, 1 MiB: plain sockets carry 1.049 Gb/s" in text
    assert text.splitlines()[-1].split()[-5:] == ["ms", "1.60", "0.80", "2.00", "ms"]


def test_how_far_the_ranks_are(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress")
    progress.begin(7)
    progress.step("first")
    progress.step("second")
    assert json.loads((tmp_path / "progress").read_text()) == [2, 7, "second"]
    Progress(None).step("nobody looks")


@pytest.mark.hosts
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


@pytest.mark.hosts
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_removes_its_hosts(number: signal.Signals) -> None:
    process = holder()
    process.send_signal(number)
    assert process.wait(20) != 0
    assert namespaces_of(process.pid) == []


@pytest.mark.hosts
def test_the_next_run_removes_what_a_killed_one_left() -> None:
    process, other = holder(), holder()
    process.kill()
    process.wait()
    net.remove_leftovers()
    assert namespaces_of(process.pid) == []
    assert len(namespaces_of(other.pid)) == 3  # its process lives
    other.communicate("\n", timeout=20)
    assert namespaces_of(other.pid) == []


def test_without_root_it_skips() -> None:
    if os.geteuid() == 0 and REASON is None:
        # An empty PATH has no ip, and the check is the same.
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
    """Checks 16 fp32 elements on 4 ranks: 12 leave each rank, as contributions and again as
    sums."""
    variant = Variant.parse(text)
    assert variant.payload(16, 4, 4) == pytest.approx(payload)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gloo:int4",
        "gloo/ring",
        "gloo@tcp",
        "ringdist:int4+fp16",
        "tcp+fp16",
        "ringdist:",
        "a b",
    ],
)
def test_a_bad_variant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"variant '{text}'".replace("+", r"\+")):
        Variant.parse(text)


@pytest.mark.hosts
@needs_tls
def test_tcp_plain_and_by_tls_beside_others(tmp_path: Path) -> None:
    case = sockets.Case(2, "1gbit", 1 << 20, ("all_reduce",), 0.1)
    found: sockets.Found = collections.defaultdict(sockets.Samples)
    for key in (None, write_key(tmp_path / "job.key")):
        sockets.measure(case, tmp_path / "logs", key, found)
    variants = [variant for _, _, variant in found]
    assert variants == [sockets.TCP, sockets.UCX, sockets.GLOO, sockets.TLS]
    assert all(min(one.times) > 0 and one.cpu[0] > 0 for one in found.values())
    assert len(list(sockets.table(found))) == 5


def test_each_target_of_the_sockets_has_its_figures() -> None:
    found = {
        (case, operation, variant): sockets.Samples([2e6, 1e6 * scale], [1e6 * scale])
        for case in sockets.CASES
        for operation in case.operations
        for scale, variant in enumerate(
            (sockets.TCP, sockets.UCX, sockets.GLOO, sockets.TLS), start=1
        )
    }
    lines = list(sockets.targets(found, [2.0, 4.0, 3.0]))
    assert lines[0] == "the cipher aes-256-gcm: 4.00 3.00 GB/s (best, median)"
    assert "tcp by ucx, 4 hosts, 1gbit, 16 MiB: 2.000 1.333 (>= 0.98)" in lines
    assert "CPU of tcp by gloo, broadcast, 2 hosts, 10gbit, 64 MiB: 0.33 0.33 (<= 1.0)" in lines
    assert lines[-1] == "time that tls adds, 2 hosts, none, 8 B: 1.00 ms 1.50 ms (<= 20 us)"
