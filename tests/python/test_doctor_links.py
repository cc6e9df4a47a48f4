"""ringdist doctor between made-up hosts, its probes, and the shells that start it on a host."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
from support.status_job import wait

from torch_ringdist import _doctor_host as host
from torch_ringdist import _doctor_links as links
from torch_ringdist import _doctor_remote
from torch_ringdist._doctor import HostError, Job, check
from torch_ringdist._doctor_host import Facts, Finding, Interface
from torch_ringdist._doctor_links import EchoServer, Probe
from torch_ringdist._doctor_remote import ShellHost, end_all


class FakeHost:
    """A host with the given facts, and the result of each probe by the port that it is sent to."""

    def __init__(self, facts: Facts, port: int, probes: Mapping[int, Probe] | None = None) -> None:
        self.name, self.facts, self.probes = facts.host, facts, probes or {}
        self.answer = {"address": facts.interfaces[0].address, "problem": ""}
        self.port = port

    def send(self, command: Mapping[str, Any]) -> None:
        self.command = command

    def receive(self) -> dict[str, Any]:
        if "clock" in self.command:
            return {"clock": host.time.time() + self.facts.time}
        if "probe" in self.command:
            ports = [one["port"] for one in self.command["probe"]]
            return {"probes": [asdict(self.probes.get(one, Probe("", 1e-4))) for one in ports]}
        facts = json.loads(json.dumps(asdict(self.facts)))
        return {"facts": facts, "ends": [{"port": self.port, "token": "t"}], **self.answer}


class DeadHost:
    name = "gone"

    def send(self, command: Mapping[str, Any]) -> None:
        pass

    def receive(self) -> dict[str, Any]:
        raise HostError("it does not answer")


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


def test_hosts_of_one_name_that_have_no_route():
    hosts = [FakeHost(facts_of("a"), port) for port in range(2)]
    hosts[1].answer = {"address": "", "problem": "it has no route to a: Network is unreachable"}
    report = check(JOB, hosts, 2)
    [one] = report.findings
    assert one.finding.check == "network" and "no route" in one.finding.problem
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


@pytest.mark.parametrize(
    "answer", [{"facts": {}}, {"facts": None}, {"ends": 5}, {"facts": {"interfaces": [{"x": 1}]}}]
)
def test_an_answer_that_cannot_be_read(answer: dict[str, Any]):
    odd = FakeHost(facts_of("b"), 2)
    odd.answer = {**odd.answer, **answer}
    if "ends" in answer:
        odd.receive = lambda: {"clock": "soon"}  # type: ignore[method-assign]
    report = check(JOB, [FakeHost(facts_of("a"), 1), odd], 2)
    [one] = report.findings
    assert one.host == "b" and "cannot be read" in one.finding.problem and report.fails
    assert [facts.host for facts in report.hosts] == ["a"]


def test_one_that_ends_meanwhile_is_named_once():
    hosts = [FakeHost(facts_of(name), port) for port, name in enumerate("abcd")]
    receive = hosts[1].receive

    def die() -> dict[str, Any]:
        if "probe" in hosts[1].command:
            raise HostError("it ended with status 1")
        return receive()

    hosts[1].receive = die  # type: ignore[method-assign]
    report = check(JOB, hosts, 4)
    assert [one.host for one in report.findings] == ["b"]
    assert len(report.links) == 7, "it is left out of later rounds"


def test_routes_lead_to_hosts_and_not_to_users():
    hosts = [FakeHost(facts_of(name), port) for port, name in enumerate(("me@a", "me@b"))]
    targets = []
    for one in hosts:
        receive = one.receive

        def record(one: FakeHost = one, receive: Any = receive) -> dict[str, Any]:
            if "examine" in one.command:
                targets.append(one.command["examine"]["route_target"])
            return receive()

        one.receive = record  # type: ignore[method-assign]
    assert not check(JOB, hosts, 2).fails
    assert targets == ["b", "a"]


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


def test_probes_of_an_echo_server():
    server = EchoServer()
    for address in ("127.0.0.1", "::1"):
        good = links.probe(address, server.port, server.token, megabytes=2)
        assert good.failure == "" and 0 < good.latency < 3 and good.rate > 1e6
    assert links.probe("127.0.0.1", server.port, "0" * 16) == Probe("closed")
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for one in idle:
        one.close()  # a scan of ports does the same
    assert links.probe("127.0.0.1", server.port, server.token).failure == ""
    server.close()
    ports = f"{server.port}-{server.port + 50}"
    within = EchoServer("RINGDIST_PORT", ports)
    assert server.port <= within.port <= server.port + 50
    with pytest.raises(OSError, match=f"RINGDIST_PORT={within.port}"):
        EchoServer("RINGDIST_PORT", str(within.port))
    within.close()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    assert links.probe("127.0.0.1", free, "0" * 16) == Probe("refused")


def test_connections_without_a_token_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(links, "_MOST_CONNECTIONS", 4)
    monkeypatch.setattr(links, "_ANSWER", 1.0)
    server = EchoServer()
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    wait(lambda: links.probe("127.0.0.1", server.port, server.token).failure == "")
    for one in idle:
        one.close()
    server.close()


def shell(text: str) -> ShellHost:
    """Returns a host with a remote shell that is this script."""
    return ShellHost("far", ["sh", "-c", text, "sh"])


def test_a_shell_that_ends_or_hangs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_doctor_remote, "ANSWER", 1.0)
    monkeypatch.setattr(_doctor_remote, "is_local", lambda name: False)
    mark = _doctor_remote._MARK
    noisy = "head -c 200000 /dev/zero | tr '\\0' 'x' >&2; printf '\\377\\n' ;"
    cases = [
        ("echo no route >&2; exit 3", "it ended with status 3: no route"),
        (f"{noisy} echo '{mark}{{bad'; sleep 50", "it answers with something else"),
        (f"echo '{mark}{{\"ready\": 1}}'; sleep 50", "it has another version"),
        ("sleep 50; true", "it does not answer within 1 s"),
    ]
    for script, words in cases:
        far = shell(script)
        began = time.monotonic()
        with pytest.raises(HostError, match=words):
            far.wait(time.monotonic() + 1.0 if "50; true" in script else began + 30)
        if "exit" in script:
            for _ in range(3):
                with pytest.raises(HostError, match="ended with status 3"):
                    far.receive()
        end_all([far])


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
