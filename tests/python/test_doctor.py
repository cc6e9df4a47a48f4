"""ringdist doctor on one host: each thing that it finds, and its options."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.torchrun import torchrun

from torch_ringdist import _doctor, _native
from torch_ringdist import _doctor_host as host
from torch_ringdist import _doctor_links as links
from torch_ringdist.__main__ import main
from torch_ringdist._doctor_host import examine

PACKAGE_PARENT = str(Path(_doctor.__file__).resolve().parents[1])


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "RINGDIST_TRANSPORT",
        "RINGDIST_SOCKET_IFNAME",
        "RINGDIST_PORT",
        "UCX_TCP_PORT_RANGE",
    ):
        monkeypatch.delenv(name, raising=False)


def found(ranks: int = 1, hosts: int = 1, store: tuple[str, int] | None = None) -> set[str]:
    return {one.check for one in examine(ranks, hosts, store).findings}


def test_a_healthy_host():
    assert found() == set()


def test_few_descriptors():
    script = 'ulimit -n 64; exec "$@"'
    command = [sys.executable, "-m", "torch_ringdist", "doctor"]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "fails: descriptors: " in done.stdout and "a process may have 64 file" in done.stdout
    assert "ulimit -n 1024" in done.stdout


def test_a_build_for_another_torch(monkeypatch: pytest.MonkeyPatch):
    from torch_ringdist import _build_info

    monkeypatch.setattr(_build_info, "TORCH_MAJOR_MINOR", (2, 1))
    monkeypatch.setattr(_native, "_load", lambda process: _native._check_build())
    [one] = examine(1, 1, None).findings
    assert one.check == "package" and "but this is torch" in one.problem and "pip" in one.cure


def test_no_ucx(monkeypatch: pytest.MonkeyPatch):
    info = {
        "ucx": {"path": "", "origin": "no wheel libucx-cu12, no libucp.so.0"},
        "interfaces": {"problem": ""},
    }
    monkeypatch.setattr(_native, "load", lambda: SimpleNamespace(info=lambda: info))
    assert found() == set(), "one host needs none"
    assert found(hosts=2) == {"ucx", *(one.check for one in host._host_name())}
    monkeypatch.setenv("RINGDIST_TRANSPORT", "shm,tcp")
    assert "ucx" not in found(hosts=2)
    monkeypatch.setenv("RINGDIST_TRANSPORT", "ucx")
    [one] = examine(1, 1, None).findings
    assert (
        "RINGDIST_TRANSPORT chooses it" in one.problem and "RINGDIST_TRANSPORT=shm,tcp" in one.cure
    )


def test_a_wrong_setting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RINGDIST_PEER_TIMEOUT", "soon")
    [one] = examine(1, 1, None).findings
    assert one.check == "settings" and "RINGDIST_PEER_TIMEOUT" in one.problem


def test_limits_of_cgroups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    inner = tmp_path / "fs" / "job" / "step"
    inner.mkdir(parents=True)
    (tmp_path / "own").write_text("1:name=other:/x\n0::/job/step\n")
    (inner / "memory.max").write_text("max\n")
    (inner / "cpu.max").write_text("max 100000\n")
    monkeypatch.setattr(host, "_OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(host, "_CGROUPS", tmp_path / "fs")
    assert found() == set()
    (inner.parent / "memory.max").write_text(f"{1 << 30}\n")  # the cgroup around it
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    facts = examine(5, 1, None)
    memory, cores = facts.findings
    assert memory.fails and "may use 1 GiB, and 5 ranks need 1.25 GiB" in memory.problem
    assert not cores.fails and "5 ranks would share 1.5 cores" in cores.problem


def test_limits_of_older_cgroups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for file, text in (
        ("own", "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n"),
        ("fs/memory/memory.limit_in_bytes", str((1 << 63) - 4096)),
        ("fs/memory/job/memory.limit_in_bytes", str(1 << 29)),
        ("fs/cpu/cpu.cfs_quota_us", "-1"),
        ("fs/cpu/cpu.cfs_period_us", "100000"),
        ("fs/cpu/job/cpu.cfs_quota_us", "50000"),
        ("fs/cpu/job/cpu.cfs_period_us", "100000"),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text + "\n")
    monkeypatch.setattr(host, "_OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(host, "_CGROUPS", tmp_path / "fs")
    memory, cores = examine(3, 1, None).findings
    assert "may use 512 MiB" in memory.problem and "share 0.5 cores" in cores.problem


def test_more_ranks_than_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    assert found(ranks=2) == set()
    assert found(ranks=3) == {"cores"}


def test_a_sandbox(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> Any:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert found() == {"shared memory"}
    monkeypatch.setenv("RINGDIST_TRANSPORT", "tcp")
    assert found() == set(), "its cure"


@pytest.mark.parametrize("name", ["eth77", "198.51.100.0/24"])
def test_an_interface_that_is_not_there(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv("RINGDIST_SOCKET_IFNAME", name)
    [one] = examine(1, 1, None).findings
    assert one.check == "interface" and name in one.problem
    assert "RINGDIST_SOCKET_IFNAME" in one.cure


def test_ranks_listen_at_the_selected_interface(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RINGDIST_SOCKET_IFNAME", "lo")
    assert links.address_towards("192.0.2.1") == "127.0.0.1"
    monkeypatch.delenv("RINGDIST_SOCKET_IFNAME")
    sources = {"own": "127.0.1.1", "192.0.2.1": "10.0.0.1", "away": "10.0.0.2", "six": "fd00::1"}
    monkeypatch.setattr(links, "_source_towards", sources.__getitem__)
    assert links.address_towards("own") == "10.0.0.1", "not the loopback"
    assert links.address_towards("away") == "10.0.0.2"
    assert links.address_towards("six") == "fd00::1"


@pytest.mark.parametrize(
    ("variable", "value", "hosts", "check_name", "words"),
    [
        ("RINGDIST_TRANSPORT", "shm", 2, "transport", "has none that connects hosts"),
        ("RINGDIST_PORT", "47000-47002", 1, "ports", "RINGDIST_PORT=47000-47002 has 3 ports"),
        ("UCX_TCP_PORT_RANGE", "65530-65600", 1, "ports", "is no range of ports"),
        ("UCX_TCP_PORT_RANGE", "48000-47000", 1, "ports", "is no range of ports"),
        ("UCX_TCP_PORT_RANGE", "48000", 1, "ports", "UCX_TCP_PORT_RANGE=48000 has 1 port,"),
        ("RINGDIST_KEY_FILE", "/nonexistent", 1, "key", "/nonexistent cannot be read"),
    ],
)
def test_a_setting_by_which_a_job_fails(
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    hosts: int,
    check_name: str,
    words: str,
):
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(4)))
    findings = [one for one in examine(4, hosts, None).findings if one.fails]
    assert [one.check for one in findings] == [check_name], findings
    assert words in findings[0].problem


def test_a_key_and_a_transport_that_does_not_encrypt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    key = tmp_path / "job.key"
    key.write_bytes(bytes(32))
    monkeypatch.setenv("RINGDIST_KEY_FILE", str(key))
    assert found() == set()
    monkeypatch.setenv("RINGDIST_TRANSPORT", "shm,ucx")
    assert found() == {"transport"}


def test_a_name_that_leads_to_the_loopback(monkeypatch: pytest.MonkeyPatch):
    def resolve(address: str) -> Any:
        return lambda *_: [(socket.AF_INET, 1, 6, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve("127.0.1.1"))
    assert [one.check for one in host._host_name()] == ["host name"]
    monkeypatch.setattr(socket, "getaddrinfo", resolve("10.0.0.1"))
    assert list(host._host_name()) == []


def test_a_dead_store(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert main(["doctor", "--store", f"127.0.0.1:{port}"]) == 0
    assert "1 host: healthy" in capsys.readouterr().out
    assert main(["doctor", "--store", f"127.0.0.1:{port}", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["fails"] and [one["check"] for one in told["findings"]] == ["store"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--ranks", "0"], "--ranks: expected 1 or more, got 0"),
        (["--store", "nowhere"], "--store: expected HOST:PORT, got 'nowhere'"),
        (["--hosts", "a,b,a"], "--hosts: each host once, got a,b,a"),
        (["--hosts=-oProxyCommand=x"], "'-oProxyCommand=x' is no name or address of a host"),
        (["--hosts", "a", "--rsh", ""], "--rsh: expected a command, as ssh"),
    ],
)
def test_options_that_are_not_accepted(words: list[str], error: str, capsys):
    assert main(["doctor", *words]) == 1
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}, None),  # a script of sbatch
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "16", "SLURM_STEP_ID": "0"}, 16),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 2),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
    ],
)
def test_launchers(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], size: int | None):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "MASTER_ADDR": "h"}.items():
        monkeypatch.setenv(name, value)
    launched = _doctor._launched()
    assert (launched.size if launched else None) == size


def test_a_size_without_a_rank(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["doctor"]) == 1
    assert "WORLD_SIZE is set, and RANK is not" in capsys.readouterr().err


def test_the_ranks_of_a_job(tmp_path: Path):
    script = tmp_path / "doctor.py"
    script.write_text(
        "import sys\nfrom torch_ringdist.__main__ import main\n"
        "sys.exit(main(['doctor', '--json']))\n"
    )
    done = torchrun(script, ranks=3, forked=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert len(told["hosts"]) == 1 and told["links"] == [] and not told["fails"]
