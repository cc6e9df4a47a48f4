"""Keeps the workers of this host going until training has finished, or all are asked to end."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_ringdist._launch.meeting import Meeting
from torch_ringdist._launch.worker import Worker
from torch_ringdist.elastic import _log, _settings
from torch_ringdist.elastic._leave import STATUS as LEFT

_POLL = 0.05  # seconds
_ASKED = (signal.SIGTERM, signal.SIGINT)


class Launcher:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._meeting = Meeting(args.rdzv)
        self._folder = args.log_dir or Path(tempfile.mkdtemp(prefix="ringdist_run_"))
        self._folder.mkdir(parents=True, exist_ok=True)
        os.environ[_settings.EVENTS] = str(self._folder.resolve() / "events.jsonl")
        self._workers = [
            Worker(number, self._command(), self._environment(), self._folder)
            for number in range(args.nproc_per_node)
        ]
        self._waiting: dict[Worker, float] = {}  # when those that have died may start again
        self._asked = 0  # how often to end
        self._kill_at = float("inf")
        self._finished = False  # a worker has, so training has
        self._failed_late = False  # another one has failed after that
        self._statuses: dict[Worker, int] = {}  # of those that are not started again

    def run(self) -> int:
        """The exit status."""
        before = {number: signal.signal(number, self._on_signal) for number in _ASKED}
        try:
            self._say(
                "launched",
                f"{len(self._workers)} workers meet at {self._meeting.address}, which "
                f"{'this launcher holds' if self._meeting.held_here else 'another one holds'}; "
                f"logs are in {self._folder}",
                address=self._meeting.address,
                workers=len(self._workers),
            )
            for worker in self._workers:
                self._start(worker)
            while len(self._statuses) < len(self._workers):
                self._look()
                time.sleep(_POLL)
        finally:
            for worker in self._workers:
                worker.send(signal.SIGKILL)
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._end()

    def _look(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            worker.show()
            if worker in self._statuses:
                continue
            if worker in self._waiting:
                if self._may_not_start():
                    self._statuses[worker] = worker.status
                elif now >= self._waiting[worker]:
                    del self._waiting[worker]
                    self._start(worker)
            elif not worker.runs:
                worker.show(rest=True)
                self._on_end(worker)
        if self._asked > 1 or now > self._kill_at:
            for worker in self._workers:
                worker.send(signal.SIGKILL)

    def _may_not_start(self) -> bool:
        return self._finished or self._asked > 0

    def _on_end(self, worker: Worker) -> None:
        status = worker.status
        again = (
            status not in (0, LEFT)
            and not self._may_not_start()
            and worker.attempt < self._args.max_restarts
        )
        how = _in_words(status)
        if again:
            how += f"; it is started again ({worker.attempt + 1} of {self._args.max_restarts})"
            self._waiting[worker] = worker.may_start_at
        else:
            self._failed_late |= self._finished and status not in (0, LEFT)
            self._finished |= status == 0
            self._statuses[worker] = status
        self._say(
            "worker_ended",
            f"worker {worker.number} (pid {worker.pid}) {how}",
            worker=worker.number,
            worker_pid=worker.pid,
            status=status,
            again=again,
        )

    def _end(self) -> int:
        statuses = [self._statuses[worker] for worker in self._workers]
        if self._finished:
            status = int(self._failed_late)
        elif self._asked:
            status = LEFT
        else:
            status = next((one if one > 0 else 128 - one for one in statuses if one != LEFT), LEFT)
        text = "training has finished" if self._finished else "training has not finished"
        kept = self._args.log_dir is None and status != 0
        self._say("ended", text + (f"; logs are in {self._folder}" if kept else ""), status=status)
        if self._args.log_dir is None and status == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        return status

    def _start(self, worker: Worker) -> None:
        worker.start()
        self._say(
            "worker_started",
            "",
            worker=worker.number,
            worker_pid=worker.pid,
            attempt=worker.attempt,
        )

    def _on_signal(self, number: int, _: object) -> None:
        self._asked += 1
        if self._asked == 1:
            self._kill_at = time.monotonic() + self._args.grace
            name = signal.Signals(number).name
            self._say("asked_to_end", f"{name}: workers leave after the step they are in")
            for worker in self._workers:
                worker.send(signal.SIGTERM)

    def _command(self) -> Sequence[str]:
        args = self._args
        how = ["-m", args.script] if args.module else [args.script]
        return [sys.executable, "-u", *how, *args.arguments]

    def _environment(self) -> dict[str, str]:
        args = self._args
        start = max(args.min_ranks, args.nproc_per_node if args.rdzv is None else 1)
        ours = {
            _settings.RENDEZVOUS: self._meeting.address,
            _settings.START_RANKS: str(start),
            _settings.MIN_RANKS: str(args.min_ranks),
            _settings.JOB: args.job,
            "LOCAL_WORLD_SIZE": str(args.nproc_per_node),
        }
        if args.max_ranks:
            ours[_settings.MAX_RANKS] = str(args.max_ranks)
        if args.nproc_per_node > 1 and "OMP_NUM_THREADS" not in os.environ:
            ours["OMP_NUM_THREADS"] = "1"  # else ranks fight for the cores, as torchrun knows
        return {**os.environ, **ours}

    @staticmethod
    def _say(name: str, text: str, **fields: Any) -> None:
        _log.event(name, text, **fields)


def _in_words(status: int) -> str:
    if status == 0:
        return "has finished"
    if status == LEFT:
        return "has left"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"has failed with status {status}"


def run(args: argparse.Namespace) -> int:
    """The command; returns its exit status.

    Raises:
        OSError, torch.distributed.DistError: no store, no folder for the logs.
    """
    return Launcher(args).run()
