"""ringdist exporter on two hosts, scraped by a real Prometheus.

`make test-metrics` fetches Prometheus from Debian. PROMETHEUS names the folder of its programs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.status_job import Job, wait

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(os.environ.get("PROMETHEUS", ROOT / "build/prometheus/usr/bin"))
PORT = "9464"

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not (PROGRAMS / "promtool").exists(),
        reason=f"there is no Prometheus in {PROGRAMS}: make test-metrics fetches it",
    ),
]

# Sends 500 MB from each host to the other, writes its own counters, and goes on with small
# operations.
SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist, torch_ringdist
dist.init_process_group("ringdist")
rank, data = dist.get_rank(), torch.ones(1 << 22)
for _ in range(20):
    dist.all_reduce(data)
dist.barrier()
time.sleep(0.5)  # until all have sent their last messages
file = f"{sys.argv[2]}.{rank}"
with open(file + ".new", "w") as out:
    json.dump(torch_ringdist.stats(), out)
os.rename(file + ".new", file)
while not os.path.exists(sys.argv[2] + ".go"):
    time.sleep(0.1)
if rank == 2:
    with open(sys.argv[2] + ".new", "w") as out:
        out.write(str(os.getpid()))
    os.rename(sys.argv[2] + ".new", sys.argv[2])
while True:
    dist.all_reduce(torch.ones(2))
    time.sleep(0.05)
"""

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: ringdist
    static_configs:
      - targets: {targets}
"""


class Monitoring:
    """Two ranks on each of two hosts, an exporter on each, and Prometheus on the first one."""

    def __init__(self, job: Job, folder: Path, stack: ExitStack) -> None:
        self.job = job
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "torch_ringdist", "exporter", f"--port={PORT}"]
        for host in range(2):
            self._start(stack, host, [*command, f"--address={job.hosts.address(host)}"], variables)
        targets = [f"{job.hosts.address(host)}:{PORT}" for host in range(2)]
        rules = ROOT / "examples/monitoring/ringdist.rules.yml"
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(rules=rules, targets=targets))
        data = f"--storage.tsdb.path={folder / 'data'}"
        line = [str(PROGRAMS / "prometheus"), f"--config.file={config}", data]
        self._start(stack, 0, [*line, "--web.listen-address=127.0.0.1:9090"], variables)

    def _start(self, stack: ExitStack, host: int, line: list[str], env: dict[str, str]) -> None:
        process = subprocess.Popen(
            [*self.job.hosts.enter(host), *line], env=env, stderr=subprocess.DEVNULL
        )
        stack.callback(process.wait)
        stack.callback(process.kill)

    def on_host(self, host: int, *command: str) -> str:
        line = [*self.job.hosts.enter(host), *command]
        return subprocess.run(line, check=True, capture_output=True, text=True, timeout=30).stdout

    def scrape(self, host: int) -> str:
        url = f"http://{self.job.hosts.address(host)}:{PORT}/metrics"
        return self.on_host(host, *_get(url))

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Returns labels and value of each series."""
        from urllib.parse import quote

        url = f"http://127.0.0.1:9090/api/v1/query?query={quote(expression)}"
        try:
            told = json.loads(self.on_host(0, *_get(url)))
        except subprocess.CalledProcessError:  # it is just starting
            return []
        return [(one["metric"], float(one["value"][1])) for one in told["data"]["result"]]


def _get(url: str) -> list[str]:
    code = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
    return [sys.executable, "-c", code, url]


@pytest.fixture
def monitoring(tmp_path: Path) -> Iterator[Monitoring]:
    with ExitStack() as stack:
        job = stack.enter_context(Job(tmp_path, "", SCRIPT))
        yield Monitoring(job, tmp_path, stack)


def _sum(text: str, name: str, **labels: str) -> float:
    """Sums the samples of a metric that have labels that match these patterns."""
    out = 0.0
    for row, value in re.findall(rf"^ringdist_{name}{{(.*)}} (\S+)$", text, re.MULTILINE):
        found = dict(re.findall(r'(\w+)="([^"]*)"', row))
        if all(re.fullmatch(pattern, found[label]) for label, pattern in labels.items()):
            out += float(value)
    return out


def test_prometheus_scrapes_four_ranks(monitoring: Monitoring):
    mark = monitoring.job.mark
    files = [mark.with_name(f"pid.{rank}") for rank in range(4)]
    wait(lambda: all(one.exists() for one in files))
    texts = [monitoring.scrape(host) for host in range(2)]
    for text in texts:
        checked = subprocess.run(
            [PROGRAMS / "promtool", "check", "metrics"], input=text, text=True, capture_output=True
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    for rank, file in enumerate(files):
        own = json.loads(file.read_text())
        text = texts[rank // 2]
        for figure, stat in (("sent", "bytes_sent"), ("received", "bytes_received")):
            assert _sum(text, f"peer_{figure}_bytes_total", rank=str(rank)) == own[stat]
    for host, text in enumerate(texts):
        sent = _sum(text, "peer_sent_bytes_total", transport="(?!shm).*")
        assert sent > 1e8
        counted = json.loads(monitoring.on_host(host, "ip", "-j", "-s", "link", "show", "eth0"))
        bytes_of_interface = counted[0]["stats64"]["tx"]["bytes"]
        print(f"host {host}: {sent:.0f} bytes of {bytes_of_interface} that its interface sent")
        assert 0 <= bytes_of_interface - sent <= 0.02 * sent
    wait(lambda: len(monitoring.query("ringdist_up == 1")) == 4)

    mark.with_name("pid.go").touch()
    pid = monitoring.job.pid
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    [(labels, _)] = wait(lambda: monitoring.query("ringdist_up == 0"))
    print(f"up of the stopped rank was 0 after {time.monotonic() - began:.1f} s")
    assert labels["rank"] == "2"
    wait(lambda: len(monitoring.query("ringdist_waiting_seconds > 5")) == 3)
    assert {one["rank"] for one, _ in monitoring.query("ringdist_up == 1")} == {"0", "1", "3"}
    assert len(monitoring.query("ringdist_peer_sent_bytes_total")) >= 3 * 3
    wait(lambda: monitoring.query('ALERTS{alertname="RingdistRankDoesNotAnswer"}'))
    series: list[Any] = monitoring.query('count by (rank) ({__name__=~"ringdist_.*"})')
    assert series and max(count for _, count in series) <= 300


def test_the_rules_are_accepted():
    rules = ROOT / "examples/monitoring/ringdist.rules.yml"
    line = [PROGRAMS / "promtool", "check", "rules", rules]
    done = subprocess.run(line, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done
    assert "SUCCESS: 5 rules found" in done.stdout
