"""ringdist exporter: its metrics of ranks that are made up, and what its command line accepts."""

from __future__ import annotations

import json
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from test_statistics import OPERATIONS, PEER

from torch_ringdist import _exporter, _snapshot
from torch_ringdist.__main__ import main
from torch_ringdist._dump import DumpError
from torch_ringdist._snapshot import GroupState, Process, SlowLink, Straggler
from torch_ringdist._statistics import Histogram, Statistics

Found = list[tuple[int, str, Process | DumpError]]

LATE = Straggler("g", 2, 0.25, 0.03, "idle", "")
SLOW = SlowLink("b", "10.0.0.2", "", "", 4e7, 1e8, 3, 0.001, "")


def rank(number: int, **more: Any) -> tuple[int, str, Process | DumpError]:
    group = GroupState("g", number, "world", 4, "waits", age=3.5)
    process = Process(f"c{number}", "a", 100 + number, "waits", (group,), **more)
    return 100 + number, f"c{number}", process


class Host:
    """The processes that the exporter finds, and its collector."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: Found = []
        monkeypatch.setattr(_snapshot, "of_host", lambda *_: self.found)
        self.registry = CollectorRegistry()
        self.registry.register(_exporter.RankCollector())

    def lines(self) -> list[str]:
        text = generate_latest(self.registry).decode()
        return [line for line in text.splitlines() if not line.startswith("#")]

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"ringdist_{name}", labels)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_metrics_of_a_rank(host: Host):
    other_size = replace(OPERATIONS, size=8, failed=2)
    statistics = Statistics((OPERATIONS, other_size), (PEER, replace(PEER, transport="shm")))
    host.found = [
        rank(0, statistics=statistics, stragglers=(LATE,), slow_links=(SLOW,)),
        rank(1),
    ]
    of = {"rank": "0", "pid": "100"}
    assert host.value("up", **of) == 1
    assert host.value("waiting_seconds", **of) == 3.5
    late = {"group": "world", "straggler": "2", "cause": "idle"}
    assert host.value("straggler_late_ratio", **of, **late) == 0.25
    ends = {"sender": "b 10.0.0.2", "receiver": ""}
    assert host.value("slow_link_bytes_per_second", **of, **ends) == 4e7
    pair = {**of, "operation": "all_reduce", "codec": "int4"}
    assert host.value("operation_failures_total", **pair) == 3
    assert host.value("operation_bytes_total", **pair) == 2 * OPERATIONS.bytes
    assert host.value("operation_wait_seconds_total", **pair) == 2 * OPERATIONS.wait.sum
    assert host.value("operation_duration_seconds_sum", **pair) == 2 * OPERATIONS.duration.sum
    assert host.value("operation_duration_seconds_count", **pair) == 8
    ends = {"peer": PEER.where, "transport": "ucx"}
    assert host.value("peer_sent_bytes_total", **of, **ends) == PEER.bytes_sent
    assert host.value("peer_received_bytes_total", **of, **ends) == PEER.bytes_received
    assert host.value("peer_sending_seconds_total", **of, **ends) == PEER.sending
    assert host.value("up", rank="1", pid="101") == 1


def test_a_bucket_has_all_durations_up_to_its_end(host: Host):
    counts = tuple(range(1, 29))
    op = replace(OPERATIONS, duration=Histogram(9.0, counts))
    host.found = [rank(0, statistics=Statistics((op,)))]
    found = {
        float(line.split('le="')[1].split('"')[0]): float(line.split()[-1])
        for line in host.lines()
        if "duration_seconds_bucket" in line
    }
    for end, count in found.items():
        within = [n for i, n in enumerate(counts[:27]) if 2**i * 1024e-9 <= end * 1.001]
        assert count == sum(within) or end == float("inf")
    assert found[float("inf")] == sum(counts)
    assert len(found) == 11


def test_a_rank_that_does_not_answer(host: Host, capsys: pytest.CaptureFixture[str]):
    host.found = [rank(0), rank(1)]
    host.lines()
    host.found[1] = (101, "c1", DumpError("process 101 is stopped"))
    assert host.value("up", rank="1", pid="101") == 0, "it keeps its labels"
    assert host.value("up", rank="0", pid="100") == 1
    assert host.value("waiting_seconds", rank="1", pid="101") is None
    assert capsys.readouterr().err.count("process 101 is stopped") == 1
    host.found[0] = (100, "c0", Process("c0", "a", 100, "busy"))  # its progress thread hangs
    assert host.value("up", rank="0", pid="100") == 0
    assert host.value("waiting_seconds", rank="0", pid="100") is None
    # One that ended, and one that has not answered since the exporter began.
    host.found = [rank(0), (102, "c2", DumpError("no key"))]
    assert host.value("up", rank="1", pid="101") is None
    assert host.value("up", rank="", pid="102") == 0


def test_a_counter_never_falls(host: Host):
    waits = (2.000002, 2.000001, 1.0, 3.0)
    found = []
    for seconds in waits:
        op = replace(OPERATIONS, wait=Histogram(seconds, (1,)), duration=Histogram(seconds, (1,)))
        host.found = [rank(0, statistics=Statistics((op,)))]
        pair = {"rank": "0", "pid": "100", "operation": "all_reduce", "codec": "int4"}
        found.append(host.value("operation_wait_seconds_total", **pair))
        assert host.value("operation_duration_seconds_sum", **pair) == found[-1]
    assert found == [2.000002, 2.000002, 2.000002, 3.0]
    host.found = []
    host.lines()
    host.found = [rank(0, statistics=Statistics((OPERATIONS,)))]
    assert host.value("operation_wait_seconds_total", **pair) == OPERATIONS.wait.sum


def test_the_rank_is_that_of_the_largest_group(host: Host):
    groups = [GroupState(f"{i:016x}", i % 3, f"g{i}", 2 + i % 2) for i in range(9)]
    for some in (groups, groups[::-1]):
        host.found = [(7, "c", Process("c", "a", 7, "elsewhere", tuple(some)))]
        assert host.value("up", rank=str(groups[7].rank), pid="7") == 1


def test_texts_of_other_processes(host: Host):
    peer = replace(PEER, where='a"\ud800\n\x1b')
    host.found = [rank(0, statistics=Statistics((), (peer,)))]
    assert any('peer="a\\"?\\n' in line for line in host.lines())


def test_a_rank_has_at_most_300_series(host: Host):
    ops = [
        replace(OPERATIONS, operation=operation, codec=codec, size=2**size)
        for operation in ("all_reduce", "all_gather", "broadcast", "barrier", "send")
        for codec in ("", "int8", "int4")
        for size in range(30)
    ]
    peers = [replace(PEER, context=str(i), where=f"pid {i} on host a") for i in range(31)]
    host.found = [rank(0, statistics=Statistics(tuple(ops), tuple(peers)))]
    lines = host.lines()
    assert len(lines) <= 300
    total = sum(float(line.split()[-1]) for line in lines if "seconds_count" in line)
    assert total == 4 * len(ops), "others are counted together"


def test_no_metric_is_unknown_in_rules_and_dashboard(host: Host):
    statistics = Statistics((OPERATIONS,), (PEER,))
    host.found = [rank(0, statistics=statistics, stragglers=(LATE,), slow_links=(SLOW,))]
    known = {line.partition("{")[0] for line in host.lines()}
    folder = Path(__file__).parents[2] / "examples/monitoring"
    texts = [one.read_text() for one in sorted(folder.iterdir())]
    dashboard = json.loads(texts[0])
    assert len(dashboard["panels"]) == len({one["id"] for one in dashboard["panels"]}) > 5
    used = {name for text in texts for name in re.findall(r"\bringdist_\w+", text)}
    assert used <= known, used - known
    whole = {re.sub("_(bucket|count|sum)$", "", name) for name in known}
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in used} == whole


def test_values_that_are_not_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for line, text in (
            (["--port", "70000"], "--port: expected 0 to 65535, got 70000"),
            (["--interval", "0"], "--interval: expected 1 to 86400 seconds, got 0"),
            (["--textfile", str(tmp_path / "absent")], "absent is no folder"),
            (["--address", "127.0.0.1", "--port", port], f"cannot listen at 127.0.0.1:{port}"),
        ):
            assert main(["exporter", *line]) == 1
            assert text in capsys.readouterr().err


def test_a_file_is_written_again_and_again(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    host.found = [rank(0)]
    waits, texts = [], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        texts.append((tmp_path / "ringdist.prom").read_text())
        host.found = [rank(0), rank(1)]
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(_exporter, "time", type("", (), {"sleep": staticmethod(sleep)}))
    assert main(["exporter", "--textfile", str(tmp_path), "--interval", "7"]) == 130
    assert waits == [7, 7]
    assert texts[0].count("ringdist_up{") == 1 and texts[1].count("ringdist_up{") == 2
    assert not list(tmp_path.iterdir()), "old values are not read on"


def test_scrapes_at_the_same_time(host: Host):
    host.found = [rank(number) for number in range(4)]
    texts: list[list[str]] = []
    threads = [threading.Thread(target=lambda: texts.append(host.lines())) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(texts) == 8 and all(one == texts[0] for one in texts)
