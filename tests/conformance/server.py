"""Forks the ranks of one test at a time, from a process that has imported the suite but never
created a group. An import costs seconds, a fork milliseconds.

Reads requests from standard input, one JSON object per line, with "backend", "test", "world_size",
"seconds" and "logs". Answers each with "outcome", "reason", "detail" and "seconds", after a first
line with "suite" and "tests". Ends with its standard input. client.py is the client.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAILED = 10  # torch's MultiProcessTestCase.TEST_ERROR_EXIT_CODE
GRACE = 2.0  # seconds for the others after one rank has failed
STACKS = 1.5  # seconds for a rank to write its stacks


@dataclass
class Rank:
    number: int
    pid: int
    pipe: Any
    log: Path
    error: str = ""
    status: int | None = None  # exit status, or minus the signal


class InRank(Exception):
    """Unwinds the server's frames in a forked rank, so that it ends like any interpreter."""

    def __init__(self, run: Any):
        super().__init__()
        self.run = run


def fork_rank(suite: Any, request: dict, number: int, file: str, group: int) -> Rank:
    mine, theirs = multiprocessing.Pipe()
    log = Path(request["logs"]) / f"{request['test']}.{number}.log"
    pid = os.fork()
    if pid == 0:
        mine.close()
        os.setpgid(0, group)
        with open(log, "w") as out, open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
        backend, test = request["backend"], request["test"]
        raise InRank(lambda: suite.run_rank(backend, test, number, file, theirs))
    # Both processes do this. The second one finds it done, or the rank has ended.
    with contextlib.suppress(OSError):
        os.setpgid(pid, group or pid)
    theirs.close()
    return Rank(number, pid, mine, log)


def look(rank: Rank) -> None:
    """Updates the rank's error and status. The rank stays a zombie, so its id is not reused."""
    with contextlib.suppress(EOFError, OSError):
        while rank.pipe.poll():
            rank.error = str(rank.pipe.recv())
    if rank.status is None:
        ended = os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            by_signal = ended.si_code != os.CLD_EXITED
            rank.status = -ended.si_status if by_signal else ended.si_status


def await_ranks(ranks: list[Rank], seconds: float) -> bool:
    """Returns True if all ended in time. If one fails, the others get only the grace period."""
    until = time.monotonic() + seconds
    failed = False
    while True:
        for rank in ranks:
            look(rank)
        if all(rank.status is not None for rank in ranks):
            return True
        if not failed and any(rank.status == FAILED for rank in ranks):
            failed = True
            until = min(until, time.monotonic() + GRACE)
        if time.monotonic() > until:
            return failed
        time.sleep(0.01)


def dump_stacks(ranks: list[Rank]) -> str:
    running = [rank for rank in ranks if rank.status is None]
    for rank in running:
        os.kill(rank.pid, signal.SIGUSR1)
    time.sleep(STACKS)
    return "\n".join(f"-- rank {rank.number}\n{tail(rank.log)}" for rank in running)


def tail(log: Path, size: int = 6000) -> str:
    return log.read_text(errors="replace")[-size:] if log.exists() else ""


def end_group(ranks: list[Rank]) -> None:
    if not ranks:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(ranks[0].pid, signal.SIGKILL)
    for rank in ranks:
        os.waitpid(rank.pid, 0)
        rank.pipe.close()


def judge(ranks: list[Rank], skips: dict[int, str]) -> dict[str, str]:
    """Applies torch's rule to the exit statuses, but no rank may die of a signal. torch's rule
    checks that for rank 0 only."""
    failed = [rank for rank in ranks if rank.status == FAILED]
    if failed:
        detail = "\n".join(
            f"-- rank {rank.number}\n{rank.error or tail(rank.log)}" for rank in failed
        )
        reason = last_line(failed[0].error or tail(failed[0].log))
        return {"outcome": "failed", "reason": reason, "detail": detail}
    status = ranks[0].status
    if status in skips:
        reason = skips[status]
        return {"outcome": "skipped", "reason": reason, "detail": ""}
    for rank in ranks:
        if rank.status and (rank.status < 0 or rank is ranks[0]):
            what = f"exit status {rank.status}"
            if rank.status < 0:
                what = signal.Signals(-rank.status).name
            reason = f"rank {rank.number} ended with {what}"
            return {"outcome": "failed", "reason": reason, "detail": tail(rank.log)}
    return {"outcome": "passed", "reason": "", "detail": ""}


def last_line(error: str) -> str:
    """Returns the raised error: the first line after the frames of the traceback, without C++
    frames."""
    frames = [
        line for line in error.splitlines() if line and not line.startswith((" ", "Traceback"))
    ]
    return frames[0] if frames else "no traceback"


def run_test(suite: Any, request: dict) -> dict[str, Any]:
    start = time.monotonic()
    reason = suite.skipped(request["test"])
    if reason is not None:
        return {"outcome": "skipped", "reason": reason, "detail": "", "seconds": 0}
    file = suite.prepare(request["test"])
    ranks: list[Rank] = []
    try:
        for number in range(request["world_size"]):
            ranks.append(fork_rank(suite, request, number, file, ranks[0].pid if ranks else 0))
        in_time = await_ranks(ranks, request["seconds"])
    except KeyboardInterrupt:
        end_group(ranks)
        raise
    stacks = "" if in_time else dump_stacks(ranks)
    end_group(ranks)
    suite.clean_up()
    if in_time:
        answer: dict[str, Any] = judge(ranks, suite.exit_reasons())
    else:
        reason = f"no end within {request['seconds']} s"
        answer = {"outcome": "failed", "reason": reason, "detail": stacks}
    return {**answer, "seconds": round(time.monotonic() - start, 2)}


def serve(suite: Any, answers: Any) -> None:
    print(json.dumps({"suite": suite.describe(), "tests": suite.names()}), file=answers, flush=True)
    # `for line in sys.stdin` would read ahead, and the ranks would inherit the buffered lines.
    while line := sys.stdin.readline():
        print(json.dumps(run_test(suite, json.loads(line))), file=answers, flush=True)


def main() -> None:
    # Output of the suite must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    suite = importlib.import_module(sys.argv[1])
    # Otherwise each rank's last collection copies all pages of torch, which costs a second.
    gc.collect()
    gc.freeze()
    try:
        serve(suite, answers)
        return
    except InRank as forked:
        answers.close()
        run = forked.run
    try:
        run()
    except Exception:
        traceback.print_exc()
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
