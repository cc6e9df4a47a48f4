"""ringdistrun: ranks of Horovod scripts on one host and on several."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.launched import preloaded, ringdistrun
from support.pool import free_port
from test_shrink_hosts import Network

from torch_ringdist import __main__ as commands
from torch_ringdist._launch import hosts
from torch_ringdist._launch.ringdistrun import main, parse_arguments, script_for
from torch_ringdist._launch.worker import Worker

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "horovod_digits.py"
RUN = [sys.executable, "-m", "torch_ringdist._launch.ringdistrun"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

SAY = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'])"


def test_ranks_here():
    say = f"{SAY}; print(*(os.environ['HOROVOD_' + one] for one in ('RANK', 'SIZE', 'LOCAL_RANK')))"
    command = [*RUN, "-np", "3", sys.executable, "-c", say]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.split("\n"))[1:]
    assert lines == [f"[{rank}] {rank} 3 {rank}" for rank in range(3) for _ in range(2)]


def test_the_first_that_fails_ends_all():
    script = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(7); time.sleep(100)"
    done = ringdistrun("-np", "2", sys.executable, "-c", script)
    assert done.returncode == 7
    assert "rank 1" in done.stderr and "failed with status 7" in done.stderr


@pytest.mark.parametrize("status", [0, 7])
def test_logs_are_kept_if_a_rank_fails(tmp_path: Path, status: int):
    done = ringdistrun("-np", "1", "sh", "-c", f"echo there; exit {status}", TMPDIR=str(tmp_path))
    assert done.returncode == status, done.stderr
    logs = [path.read_text() for path in tmp_path.glob("ringdist_run_*/worker-0.0.log")]
    assert logs == (["there\n"] if status else [])
    assert (f"logs are in {tmp_path}/ringdist_run_" in done.stderr) == bool(status), done.stderr


@pytest.mark.parametrize("options", [[], ["--world-size=1"]])
def test_a_folder_of_logs_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], options: list[str]
):
    assert commands.main(["run", *options, "--log-dir=/proc/self", "x.py"]) == 1
    assert "run: --log-dir: '/proc/" in capsys.readouterr().err


def test_a_worker_without_a_log_is_reported(capsys: pytest.CaptureFixture[str]):
    worker = Worker(3, ["true"], {}, Path("/proc/self"), "")
    worker.start()
    while worker.runs:
        time.sleep(0.01)
    assert "worker 3: its output is lost: [Errno 2] No such file" in capsys.readouterr().err


def test_one_that_is_killed_ends_all():
    script = "import os, signal, time; os.environ['RANK'] == '0' and os.kill(os.getpid(), 9)"
    done = ringdistrun("-np", "2", sys.executable, "-c", f"{script}; time.sleep(100)")
    assert done.returncode == 128 + signal.SIGKILL
    assert "was ended by SIGKILL" in done.stderr


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_it(tmp_path: Path, number: int):
    script = (
        "import os, pathlib, time;"
        f"pathlib.Path('{tmp_path}', os.environ['RANK']).write_text(str(os.getpid()));"
        "time.sleep(100)"
    )
    launcher = subprocess.Popen(
        [*RUN, "-np", "2", sys.executable, "-c", script],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    files = [tmp_path / "0", tmp_path / "1"]
    deadline = time.monotonic() + 110
    while not all(one.exists() and one.read_text() for one in files):
        assert time.monotonic() < deadline and launcher.poll() is None
        time.sleep(0.05)
    pids = [int(one.read_text()) for one in files]
    launcher.send_signal(number)
    expected = -number if number == signal.SIGKILL else 128 + number
    assert launcher.wait(30) == expected
    deadline = time.monotonic() + 30
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)


def test_a_shell_script_ends_with_all_that_it_started(tmp_path: Path):
    script = tmp_path / "rank.sh"
    script.write_text(
        f"sleep 100 & echo $! > {tmp_path}/$RANK\n"
        f"while [ ! -s {tmp_path}/0 ] || [ ! -s {tmp_path}/1 ]; do sleep 0.05; done\n"
        "[ $RANK = 1 ] && exit 3\nwait\n"
    )
    done = ringdistrun("-np", "2", "bash", str(script))
    assert done.returncode == 3, done.stderr
    pids = [int((tmp_path / name).read_text()) for name in "01"]
    deadline = time.monotonic() + 30
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)


def test_a_folder_that_another_host_lacks_ends_the_job(monkeypatch: pytest.MonkeyPatch):
    args = parse_arguments(["-np", "1", "-H", "a:1", "python", "x.py"])
    monkeypatch.setattr(os, "getcwd", lambda: "/no/such/folder")
    text = script_for(args, args.shares[0], stdin=True)
    with subprocess.Popen(["sh"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as shell:
        assert shell.stdin is not None and shell.stderr is not None
        shell.stdin.write(text.encode())
        shell.stdin.flush()  # and it stays open, as that of a remote shell
        assert shell.wait(20) == 1
        assert b"/no/such/folder" in shell.stderr.read()


LINES = "for i in range(100000): print('a line of some length, and many of them', i)"
HOSTS = ",".join(f"host-{number}" for number in range(1000))


@pytest.mark.parametrize(
    "arguments",
    [["-np", "2", sys.executable, "-c", LINES], ["-H", HOSTS, "--dry-run", "x"]],
    ids=["ranks", "dry run"],
)
def test_its_reader_may_leave(tmp_path: Path, arguments: list[str]):
    errors = tmp_path / "errors"
    environment = {**ENVIRONMENT, preloaded.FINALIZE: "1"}
    with errors.open("w") as stderr:
        launcher = preloaded.ForkedProcess(
            [*RUN, *arguments], env=environment, stdout=subprocess.PIPE, stderr=stderr
        )
    assert launcher.stdout is not None
    with launcher.stdout as stdout:
        assert stdout.readline().endswith(b"\n")
    assert launcher.wait(100) != 120  # stdout was flushed
    assert not re.search("Traceback|Exception ignored", errors.read_text()), errors.read_text()


def test_what_is_printed_is_shown_at_once():
    script = "import time; print('there'); time.sleep(100)"
    launcher = subprocess.Popen(
        [*RUN, "-np", "1", sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"},
    )
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "[0] there\n"
    launcher.terminate()
    assert launcher.wait(30) == 128 + signal.SIGTERM


def test_hosts_that_cannot_be_reached():
    done = ringdistrun("-np", "2", "-H", "nowhere.invalid:2", "--rsh", "/no/such/rsh", "true")
    assert done.returncode == 1 and "--rsh: No such file" in done.stderr, done.stderr
    assert "/no/such/rsh" in done.stderr
    done = ringdistrun("-np", "2", "-H", "nowhere.invalid:2", "--rsh", "false", "true")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_text_that_is_no_name_is_left_to_the_remote_shell(
    monkeypatch: pytest.MonkeyPatch, host: str
):
    monkeypatch.setattr("torch_ringdist._launch.signals.that_ask", list)
    assert main(["-np", "2", "-H", f"{host}:2", "--rsh", "false", "x"]) == 1


def test_a_key_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("RINGDIST_KEY_FILE", "/nowhere/at/all")
    assert main(["--min-np", "1", "x"]) == 1
    said = "ringdistrun: RINGDIST_KEY_FILE names /nowhere/at/all, which cannot be read"
    assert capsys.readouterr().err.startswith(said)


def test_an_address_of_no_host(capsys: pytest.CaptureFixture[str]):
    with pytest.warns(UserWarning, match=r"all addresses .* a\.\.b is no address of this host"):
        assert main(["--min-np", "1", "-H", "b", "--address", "a..b", "x"]) == 1
    assert "ringdistrun: a..b: it is no name of a host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([option, "--world-size=1"], f"{option.partition('=')[0]} has no effect with --world-size")
        for option in (
            *("--min-ranks=1", "--max-ranks=1", "--start-ranks=1", "--max-restarts=3"),
            *("--job=a", "--resume", "--first-worker=0"),
        )
    ]
    + [(["--first-rank=0"], "--first-rank goes with --world-size")],
)
def test_options_of_the_other_kind_of_job(
    capsys: pytest.CaptureFixture[str], options: list[str], said: str
):
    assert commands.main(["run", *options, "x"]) == 1
    assert said in capsys.readouterr().err


SLOW_TO_END = """
import os, signal, sys, time
from pathlib import Path
there, saved = Path("there"), Path("saved")
def end(*_):
    time.sleep(6)  # more than the default
    saved.touch()
    sys.exit()
if os.environ["RANK"] == "1":
    signal.signal(signal.SIGTERM, end)
    there.touch()
    time.sleep(100)
while not there.exists():
    time.sleep(0.05)
sys.exit(3)
"""


def test_ranks_have_the_grace_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(SLOW_TO_END)
    options = ["--world-size=2", "--nproc-per-node=2", "--max-restarts=0", "--grace=60"]
    assert commands.main(["run", *options, "script.py"]) == 3
    assert Path("saved").exists()


# Starts them by the lines of --dry-run, as Slurm does. No other process ends the ranks.
def test_one_that_fails_ends_those_of_other_launchers(tmp_path: Path):
    port = free_port()
    script = "import os, sys, time; os.environ['RANK'] == '2' and sys.exit(7); time.sleep(100)"
    say = (
        f"import os; open('{tmp_path}/' + os.environ['RANK'], 'w').write(os.environ['LOCAL_RANK'])"
    )
    launchers, files = [], [tmp_path / "first", tmp_path / "second"]
    for file, (first, count) in zip(files, ((0, 2), (2, 1)), strict=True):
        command = [
            *(sys.executable, "-m", "torch_ringdist", "run", "--world-size=3"),
            *(f"--nproc-per-node={count}", f"--first-rank={first}"),
            *(f"--rdzv=127.0.0.1:{port}", "--no-python", "--"),
            *(sys.executable, "-c", f"{say}; {script}"),
        ]
        with file.open("w") as stderr:
            launchers.append(preloaded.ForkedProcess(command, stderr=stderr, env=ENVIRONMENT))
    statuses = [one.wait(90) for one in launchers]
    outputs = [file.read_text() for file in files]
    assert statuses == [7, 7], outputs
    assert "rank 2" in outputs[0] and "failed with status 7" in outputs[0], outputs
    assert (tmp_path / "2").read_text() == "0", "the first of its host"


def test_dry_run_says_what_each_host_runs(capsys: pytest.CaptureFixture[str]):
    line = ["-np", "3", "-H", "a:2,b:4", "--network-interfaces", "eth1", "--dry-run"]
    line += ["--network-interface", "eth2"]
    assert main([*line, "python", "x y.py", "-np", "9"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    for line in (first, second):
        assert " RINGDIST_SOCKET_IFNAME=eth1,eth2 " in line
    assert first.startswith("a: cd ") and second.startswith("b: cd ")
    common = "--rdzv=a:29500 --no-python -- python 'x y.py' -np 9"
    assert first.endswith(f"--nproc-per-node=2 --world-size=3 --first-rank=0 --horovod {common}")
    assert second.endswith(f"--nproc-per-node=1 --world-size=3 --first-rank=2 --horovod {common}")


@pytest.mark.parametrize(
    ("option", "variable"),
    [
        ("--start-timeout", "START_TIMEOUT"),
        ("--fusion-threshold-mb", "FUSION_THRESHOLD"),
        ("--cache-capacity", "CACHE_CAPACITY"),
        ("--stall-check-warning-time-seconds", "STALL_CHECK_TIME_SECONDS"),
        ("--stall-check-shutdown-time-seconds", "STALL_SHUTDOWN_TIME_SECONDS"),
    ],
)
def test_zero_is_a_value(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    variable: str,
):
    monkeypatch.setenv(f"HOROVOD_{variable}", "7")
    assert main([option, "0", "--dry-run", "x"]) == 0
    assert f" HOROVOD_{variable}=0 " in capsys.readouterr().out


def test_options_of_horovod_without_effect():
    names = ["--disable-cache", "--no-hierarchical-allreduce", "--no-hierarchical-allgather"]
    names += ["--no-autotune", "--no-timeline-mark-cycles", "--stall-check"]
    names += ["--mpi-threads-disable", "--no-mpi-threads-disable", "--log-without-timestamp"]
    names += ["--log-hide-timestamp"]
    assert parse_arguments([*names, "python", "x.py"]).command == ["python", "x.py"]


def test_hosts(tmp_path: Path):
    assert hosts.parse_hosts("a:2,b,[::1]:3") == [("a", 2), ("b", 1), ("::1", 3)]
    assert hosts.parse_hosts("me@a_1.x-y:2,[fe80::1%eth0]") == [
        ("me@a_1.x-y", 2),
        ("fe80::1%eth0", 1),
    ]
    file = tmp_path / "hosts"
    file.write_text("# two\na slots=2\n\nb  # one\n")
    assert hosts.parse_hostfile(file) == [("a", 2), ("b", 1)]
    share = hosts.Share
    assert hosts.shares([("a", 2), ("b", 2)], 3) == [share("a", 0, 2), share("b", 2, 1)]
    assert hosts.shares([("a", 2), ("b", 2)], 2) == [share("a", 0, 2)]
    args = parse_arguments(["--hostfile", str(file), "python", "x.py"])
    assert args.shares == [share("a", 0, 2), share("b", 2, 1)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-np", "2"], "a command is missing"),
        (["-np", "0", "x"], "-np must be at least 1"),
        (["-np", "3", "-H", "a:2", "x"], "2 slots"),
        (["-H", "a:x", "x"], "HOST:SLOTS"),
        (["-H", "a:0", "x"], "at least 1 slot"),
        (["-H", "a:1,a:1", "x"], "each host once"),
        (["-H-oProxyCommand=id", "x"], "'-oProxyCommand=id' is no name or address of a host"),
        (["-H", "\x1b[2J:1", "x"], "'\\x1b[2J' is no name or address of a host"),
        (["-H", "a@-oProxyCommand=id", "x"], "is no name or address of a host"),
        (["-H", "a:1", "--hostfile", "f", "x"], "give one of them"),
        (["--hostfile", "/nowhere/at/all", "x"], "No such file"),
        (["-np", "2", "-H", "localhost:1,b:1", "x"], "others do not reach localhost"),
        (["--cycle-time-ms", "5", "x"], "there is no cycle"),
        (["--mpi", "-np", "2", "x"], "there is no MPI here"),
        (["-cb"], "python -m torch_ringdist info"),
        (["--num-nccl-streams", "2", "x"], "NCCL_MAX_NCHANNELS"),
        (["--thread-affinity", "0", "x"], "taskset or numactl"),
        (["--binding-args=-x", "x"], "taskset or numactl"),
        (["--gloo-timeout-seconds", "9", "x"], "--stall-check-shutdown-time-seconds is the limit"),
        (["--prefix-output-with-timestamp", "x"], "the program ts adds it"),
        (["-prefix-timestamp", "x"], "the program ts adds it"),
        (["--port", "70000", "x"], "--port: must be a number from 0 to 65535, got '70000'"),
        (["--rsh", 'ssh "a', "x"], "--rsh: must be a command, got 'ssh \"a'"),
        (["--rsh", "", "x"], "--rsh: must be a command, got ''"),
        (["--min-np", "0", "x"], "--min-np must be at least 1, got 0"),
        (["--max-np", "2", "-np", "2", "x"], "--max-np goes with --min-np"),
        (["--reset-limit", "2", "-np", "2", "x"], "--reset-limit goes with --min-np"),
        (["--min-np", "2", "--reset-limit", "-1", "x"], "--reset-limit must be at least 0"),
        (["--min-np", "3", "-np", "2", "x"], "--min-np=3, -np=2 and --max-np=None must not fall"),
        (["--min-np", "1", "-np", "3", "--max-np", "2", "x"], "--max-np=2 must not fall"),
        (["--min-np", "3", "-H", "a:2", "x"], "2 slots"),
        (["--host-discovery-script", "x", "-H", "a:2", "x"], "not with -H"),
        (["--cooldown-range", "1", "x"], "started again"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: list[str], text: str):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(arguments)
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.hosts
@pytest.mark.default_of("RINGDIST_TRANSPORT", reason="hosts are reached by ucx alone")
def test_two_hosts():
    with Network(2) as network:
        names = [network.enter(host)[-1] for host in range(2)]
        done = ringdistrun(
            *("-np", "2", "-H", f"{names[0]}:1,{names[1]}:1", "--rsh", "ip netns exec"),
            *("--address", network.address(0), sys.executable, str(EXAMPLE)),
            *("--steps=20", "--no-progress"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "parameters identical on 2 ranks" in done.stdout
        script = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit(7); time.sleep(100)"
        done = ringdistrun(
            *("-np", "2", "-H", f"{names[0]}:1,{names[1]}:1", "--rsh", "ip netns exec"),
            *("--address", network.address(0), sys.executable, "-c", script),
        )
        assert done.returncode == 7, done.stdout + done.stderr
