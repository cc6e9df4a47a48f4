"""ringdist doctor: each thing that it finds, on this host and between made-up ones."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.torchrun import torchrun

from torch_ringdist import _doctor, _native
from torch_ringdist import _doctor_host as host
from torch_ringdist import _doctor_links as links
from torch_ringdist.__main__ import main
from torch_ringdist._doctor import HostError, Job, check
from torch_ringdist._doctor_host import Facts, Finding, Interface, examine
from torch_ringdist._doctor_links import Listener, Probe

PACKAGE_PARENT = str(Path(_doctor.__file__).resolve().parents[1])


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RINGDIST_TRANSPORT", "RINGDIST_INTERFACE", "RINGDIST_PORT"):
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
    info = {"ucx": {"path": "", "origin": "no wheel libucx-cu12, no libucp.so.0"}}
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


def test_an_interface_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RINGDIST_INTERFACE", "eth77")
    [one] = examine(1, 1, None).findings
    assert one.check == "interface" and "RINGDIST_INTERFACE names eth77" in one.problem


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
    ],
)
def test_options_that_are_not_accepted(words: list[str], error: str, capsys):
    assert main(["doctor", *words]) == 1
    assert error in capsys.readouterr().err


class FakeHost:
    """A host with the given facts, and the result of each probe by the port that it is sent to."""

    def __init__(self, facts: Facts, port: int, probes: Mapping[int, Probe] | None = None) -> None:
        self.name, self.facts, self.probes = facts.host, facts, probes or {}
        self.place = {"address": facts.interfaces[0].address, "problem": ""}
        self.port = port

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if "probe" in command:
            return asdict(self.probes.get(command["probe"]["port"], Probe("", 1e-4)))
        facts = replace(self.facts, time=host.time.time() + self.facts.time)
        place = {**self.place, "port": self.port, "token": "t"}
        return {"facts": json.loads(json.dumps(asdict(facts))), **place}


class DeadHost:
    name = "gone"

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        raise HostError("does not answer")


def facts_of(name: str, ahead: float = 0.0, mtu: int = 1500, torch: str = "2.13.0") -> Facts:
    """`ahead`: seconds by which its clock is ahead of this one."""
    versions = {"torch_ringdist": "0.1.0", "python": "3.11.2", "torch": torch}
    return Facts(name, ahead, versions, (Interface("eth0", f"address of {name}", mtu),), ())


JOB = Job(ranks=1, store=None, measures=False)


def test_hosts_that_are_alike():
    hosts = [FakeHost(facts_of(name), port) for port, name in enumerate("abc")]
    report = check(JOB, hosts, 3)
    assert report.findings == [] and not report.fails and len(report.links) == 6
    assert report.text() == "3 hosts, 6 links: healthy"


def test_hosts_of_one_name_that_have_no_way():
    hosts = [FakeHost(facts_of("a"), port) for port in range(2)]
    hosts[1].place = {"address": "", "problem": "it finds no way to a: Network is unreachable"}
    report = check(JOB, hosts, 2)
    [one] = report.findings
    assert one.finding.check == "route" and "no way" in one.finding.problem
    assert [(link.source, link.target) for link in report.links] == [("a ()", "a (address of a)")]


def test_hosts_that_differ():
    hosts = [
        FakeHost(facts_of("a"), 1),
        FakeHost(facts_of("b", ahead=30.0, mtu=9000, torch="2.12.1"), 2),
    ]
    report = check(JOB, hosts, 2)
    assert {one.finding.check for one in report.findings} == {"version of torch", "clock", "MTU"}
    text = report.text()
    assert "fails: version of torch: hosts differ: 2.13.0 on a; 2.12.1 on b" in text
    assert "warning: clock: b: its clock and this one differ by 30.0 s" in text
    assert "warning: MTU: hosts differ: 1500 on a, 9000 on b" in text
    assert text.endswith("2 hosts, 2 links: 1 problem by which a job would fail")


@pytest.mark.parametrize(
    ("failure", "check_name", "words"),
    [
        ("dropped", "port", "a firewall drops it"),
        ("refused", "port", "a firewall rejects it"),
        ("Network is unreachable", "port", "Network is unreachable"),
        ("large", "packet size", "packets are lost that are longer than the path carries"),
    ],
)
def test_one_pair(failure: str, check_name: str, words: str):
    hosts = [
        FakeHost(facts_of("a"), 1),
        FakeHost(facts_of("b"), 2, {3: Probe(failure)}),
        FakeHost(facts_of("c"), 3),
    ]
    [one] = check(JOB, hosts, 3).findings
    assert (one.host, one.finding.check, one.finding.fails) == ("b to c", check_name, True)
    assert words in one.finding.problem and "address of c, port 3" in one.finding.problem


def test_a_host_that_does_not_answer():
    report = check(JOB, [FakeHost(facts_of("a"), 1), DeadHost()], 2)
    [one] = report.findings
    assert one.host == "gone" and "does not answer" in one.finding.problem and report.fails


def test_links_are_listed():
    hosts = [
        FakeHost(facts_of(name), port, {1 - port: Probe("", 2e-5, 1.25e8)})
        for port, name in enumerate("ab")
    ]
    lines = check(Job(1, None, measures=True), hosts, 2).text().splitlines()
    assert lines[1].split() == ["from", "to", "latency", "rate"]
    assert lines[2].split() == ["a", "b", "20", "us", "1", "Gbit/s"]


def test_a_finding_of_several_hosts_is_one_line():
    finding = Finding("cores", "too few", "fewer ranks", fails=False)
    hosts = [FakeHost(replace(facts_of(name), findings=(finding,)), 1) for name in "ab"]
    text = check(JOB, hosts, 2).text()
    assert text.startswith("warning: cores: a, b: too few\n    fewer ranks\n")


def test_probes_of_a_listener(monkeypatch: pytest.MonkeyPatch):
    listener = Listener()
    good = links.probe("127.0.0.1", listener.port, listener.token, megabytes=2)
    assert good.failure == "" and 0 < good.latency < 3 and good.rate > 1e6
    assert links.probe("127.0.0.1", listener.port, "0" * 16) == Probe("closed")
    listener.close()
    monkeypatch.setenv("RINGDIST_PORT", f"{listener.port}-{listener.port + 50}")
    within = Listener()
    assert listener.port <= within.port <= listener.port + 50
    monkeypatch.setenv("RINGDIST_PORT", str(within.port))
    with pytest.raises(OSError, match=f"RINGDIST_PORT={within.port}"):
        Listener()
    within.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    assert links.probe("127.0.0.1", free, "0" * 16) == Probe("refused")


def test_a_path_that_loses_large_packets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(links, "_ANSWER", 0.5)

    def echo_a_little(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            peer.recv(16)
            for _ in range(5):
                peer.sendall(peer.recv(64))
            peer.settimeout(5)
            while peer.recv(1 << 20):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo_a_little, args=(server,), daemon=True).start()
        result = links.probe("127.0.0.1", server.getsockname()[1], "0" * 16)
    assert result.failure == "large" and result.latency > 0


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
