"""Ranks that really end. As a script this is a server that has imported torch and forks ranks. Each
rank runs to the end of this file like any interpreter, or ends before.

Reads one scenario per line, as JSON, from stdin, and writes the reports of its ranks to stdout.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

WAYS = (
    *("return", "sys.exit", "exception", "os._exit", "SIGKILL", "SIGTERM"),
    *("async", "child", "thread"),
)
HARMLESS = ("child", "thread")  # a child or a thread of the process ends, not the process
# Number of operations that all ranks finish before.
MOMENTS = {"first": 1, "later": 6, "middle": 2}
BEFORE = {"created": 0}  # the group may not have formed yet
EXIT_CODES = {"sys.exit": 3, "exception": 1, "os._exit": 3, "SIGKILL": -9, "SIGTERM": -15}
LIMIT = 60.0


@dataclass(frozen=True)
class Scenario:
    size: int
    way: str
    moment: str
    culprit: int  # its rank; rank 0 is the root of broadcasts
    destroys: bool = False  # destroys its group before it ends
    transport: str = ""
    port: int = 0  # port of the store
    prefix: str = ""  # prefix of the keys in the store

    def __str__(self) -> str:
        who = "root" if self.culprit == 0 else "other"
        words = [str(self.size), self.way, self.moment, who, self.transport]
        return "-".join([*filter(None, words), *(["destroys"] if self.destroys else [])])


@dataclass
class Report:
    """Observations of one rank other than the culprit."""

    rank: int
    finished: int = 0  # number of operations
    wrong: str = ""  # description of a wrong result
    kinds: list[str] = field(default_factory=list)  # class names of the error
    text: str = ""
    after_the_end: bool = False  # the culprit's process had ended at the error


class Server:
    """Runs scenarios in a server process."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, scenario: Scenario) -> tuple[list[Report], list[int | None], str]:
        """Returns the reports of all ranks but the culprit, every rank's exit code (None if it
        hung), and the stderr of all."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps(asdict(scenario)), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return [Report(**one) for one in answer["reports"]], answer["codes"], answer["printed"]

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(20)


def _serve() -> tuple[Scenario, int, int, int] | None:
    """Returns in each rank: its scenario and rank, a pipe for its report, and one that closes
    when it may end."""
    for line in sys.stdin:
        scenario = Scenario(**json.loads(line))
        log = Path(f"/tmp/ringdist_endings_{os.getpid()}")
        report_in, report_out = os.pipe()
        done_in, done_out = os.pipe()
        pids = []
        for rank in range(scenario.size):
            pid = os.fork()
            if pid == 0:
                os.close(report_in)
                os.close(done_out)
                os.setsid()
                printed = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
                os.dup2(printed, 1)
                os.dup2(printed, 2)
                return scenario, rank, report_out, done_in
            pids.append(pid)
        os.close(report_out)
        os.close(done_in)
        reports = _collect(report_in, scenario.size - 1)
        os.close(done_out)
        codes = _reap(pids)
        os.close(report_in)
        printed_text = log.read_text(errors="replace") if log.exists() else ""
        log.unlink(missing_ok=True)
        print(json.dumps({"reports": reports, "codes": codes, "printed": printed_text}), flush=True)
    return None


def _collect(pipe: int, count: int) -> list[dict[str, Any]]:
    text, deadline = b"", time.monotonic() + LIMIT
    while text.count(b"\n") < count:
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        if not (more := os.read(pipe, 65536)):
            break
        text += more
    return [json.loads(line) for line in text.splitlines()]


def _reap(pids: list[int]) -> list[int | None]:
    codes: dict[int, int | None] = dict.fromkeys(pids)
    deadline = time.monotonic() + 20
    while None in codes.values() and time.monotonic() < deadline:
        for pid in [p for p, code in codes.items() if code is None]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for pid in [p for p, code in codes.items() if code is None]:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return list(codes.values())


def _join(scenario: Scenario, rank: int) -> None:
    if scenario.transport:
        os.environ["RINGDIST_TRANSPORT"] = scenario.transport
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", scenario.port, is_master=False)
    dist.init_process_group(
        "ringdist",
        store=dist.PrefixStore(scenario.prefix, store),
        rank=rank,
        world_size=scenario.size,
        timeout=timedelta(seconds=40),
    )


def _call(number: int, size: int) -> str:
    """Runs one operation on all ranks. Returns a description of a wrong result, or ""."""
    tensor = torch.full((2,), float(dist.get_rank()))
    if number % 2 == 0:
        dist.broadcast(tensor, 0)
        wanted = 0.0
    else:
        dist.all_reduce(tensor)
        wanted = float(sum(range(size)))
    return "" if tensor.eq(wanted).all() else f"operation {number} gave {tensor.tolist()}"


def _large() -> torch.Tensor:
    return torch.ones(2_000_000)


def _end(scenario: Scenario) -> None:
    work = None
    if scenario.moment == "middle" or scenario.way == "async":
        work = dist.all_reduce(_large(), async_op=True)
    if scenario.destroys:
        dist.destroy_process_group()
    if scenario.way == "sys.exit":
        sys.exit(3)
    if scenario.way == "exception":
        raise RuntimeError("the culprit")
    if scenario.way == "os._exit":
        os._exit(3)
    if scenario.way in ("SIGKILL", "SIGTERM"):
        os.kill(os.getpid(), getattr(signal, scenario.way))
        time.sleep(LIMIT)
    if scenario.way == "async":
        globals()["_kept"] = work  # until the interpreter is finalised


def _end_of_a_part(way: str) -> None:
    if way == "child":
        child = os.fork()
        if child == 0:
            sys.exit(0)  # runs the inherited exit handlers
        assert os.waitpid(child, 0)[1] == 0
        return
    thread = threading.Thread(target=lambda: (dist.barrier(), sys.exit(0)))
    thread.start()
    thread.join()


def _gone(text: str, culprit: int) -> bool:
    """Returns True if the process that the error names as the culprit has ended."""
    found = re.search(rf"rank {culprit} \(pid (\d+)", text)
    try:
        stat = Path(f"/proc/{found[1] if found else 'none'}/stat").read_text()
    except OSError:
        return found is not None
    return stat.rsplit(")", 1)[1].split()[0] in "ZX"


def _watch(scenario: Scenario, report: Report) -> None:
    """Runs a rank that outlives the culprit."""
    calls = [dist.all_reduce] * (2 if scenario.moment == "middle" or scenario.way == "async" else 1)
    for call in calls:
        tensor = _large() if len(calls) == 2 else torch.ones(2)
        try:
            call(tensor)
        except Exception as error:
            report.kinds = [kind.__name__ for kind in type(error).__mro__]
            report.text = str(error)[:1500]
            report.after_the_end = _gone(report.text, scenario.culprit)
            return
        if not tensor.eq(scenario.size).all():
            report.wrong = "the operation in whose middle the culprit ended"


def _live(scenario: Scenario, rank: int, reports: int, done: int) -> None:
    _join(scenario, rank)
    report = Report(rank)
    try:
        for number in range({**MOMENTS, **BEFORE}[scenario.moment]):
            report.wrong = report.wrong or _call(number, scenario.size)
            report.finished += 1
        if scenario.way in HARMLESS:
            if scenario.moment == "middle":
                work = dist.all_reduce(_large(), async_op=True)
            if rank == scenario.culprit:
                _end_of_a_part(scenario.way)
            elif scenario.way == "thread":
                dist.barrier()
            if scenario.moment == "middle":
                work.wait()
            report.wrong = report.wrong or _call(1, scenario.size)
            report.finished += 1
            if scenario.destroys:
                dist.destroy_process_group()
        elif rank != scenario.culprit:
            _watch(scenario, report)
    except Exception as error:
        report.text = f"operation {report.finished}: {error}"[:1500]
    if rank != scenario.culprit:
        os.write(reports, json.dumps(asdict(report)).encode() + b"\n")
        os.close(reports)
        os.read(done, 1)  # until all have reported, so that no rank observes another end before
        os._exit(0)
    if report.text or report.wrong:
        print(f"the culprit: {report.text} {report.wrong}", file=sys.stderr, flush=True)
        os._exit(77)
    if scenario.way not in HARMLESS:
        _end(scenario)


if __name__ == "__main__":
    import torch
    import torch.distributed as dist

    import torch_ringdist  # noqa: F401

    gc.freeze()  # else each collection in a rank copies the pages of all objects
    atexit.register(gc.unfreeze)  # but the last one
    role = _serve()
    if role:
        _live(*role)
