"""ringdist doctor between three hosts, which it reaches by a remote shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.launched import ROOT

from benchmarks.net import hosts as net  # support.launched has added the repository to sys.path

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(240)]


def _doctor(hosts: net.Hosts, folder: Path, *words: str) -> dict[str, Any]:
    """Returns the JSON of the command on the first host, for all three."""
    rsh = folder / "rsh"
    cases = [f'{hosts.address(one)}) exec {" ".join(hosts.enter(one))} "$@";;' for one in range(3)]
    rsh.write_text("\n".join(["#!/bin/sh", "host=$1", "shift", "case $host in", *cases, "esac"]))
    rsh.chmod(0o755)
    names = ",".join(hosts.address(one) for one in range(3))
    command = [*hosts.enter(0), sys.executable, "-m", "torch_ringdist", "doctor", "--json"]
    done = subprocess.run(
        [*command, "--hosts", names, f"--rsh={rsh}", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == int(told["fails"]), done.stderr
    return told


def _failures(told: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one["check"], one["host"]) for one in told["findings"] if one["fails"]}


def test_links_between_hosts(tmp_path: Path):
    with net.Hosts(3) as hosts:
        told = _doctor(hosts, tmp_path, "--links")
        assert _failures(told) == set() and len(told["hosts"]) == 3, told
        assert all(one["probe"]["rate"] > 1e6 for one in told["links"]) and len(told["links"]) == 6
        first, second, third = (hosts.address(one) for one in range(3))
        # Answers of the third host to the second one are lost, and it cannot connect to it.
        net.call(*hosts.enter(2), "ip", "route", "add", "blackhole", second)
        # The switch loses packets that are longer than the port of the first host takes.
        net.call("ip", "-n", hosts.switch, "link", "set", "port0", "mtu", "1000")
        for one in range(3):  # else the segments of a large message count as one packet
            enter = hosts.enter(one)
            net.call(*enter, "ip", "link", "set", net.INTERFACE, "gso_max_segs", "1")
        assert _failures(_doctor(hosts, tmp_path)) == {
            *(("packet size", f"{first} to {other}") for other in (second, third)),
            *(("packet size", f"{other} to {first}") for other in (second, third)),
            ("port", f"{second} to {third}"),
            ("port", f"{third} to {second}"),
        }


def test_a_host_that_the_shell_does_not_reach(tmp_path: Path):
    with net.Hosts(3) as hosts:
        told = _doctor(hosts, tmp_path, "--hosts", f"{hosts.address(0)},10.77.9.9")
        assert _failures(told) == {("remote shell", "10.77.9.9")}
        [one] = [one for one in told["findings"] if one["fails"]]
        assert "it ended with status" in one["problem"]
