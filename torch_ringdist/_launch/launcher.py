"""Runs the workers of this host until training has finished or a signal ends them."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import torch.distributed as dist

from torch_ringdist._launch import addresses, arguments, fixed_launcher, signals
from torch_ringdist._launch.rendezvous_store import RendezvousStore
from torch_ringdist._launch.worker import Worker, command_of
from torch_ringdist._output_paths import check_writable
from torch_ringdist._units import counted
from torch_ringdist.elastic import _log, _settings
from torch_ringdist.elastic._leave import STATUS as LEFT

_POLL = 0.05  # seconds
_NEXT_TRY = 5.0  # seconds after a start that failed


# Starts workers and restarts those that die, and may host the store of the job. One thread.
class Launcher:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._meeting = RendezvousStore(args.rdzv, args.job)
        self._folder = args.log_dir or Path(tempfile.mkdtemp(prefix="ringdist_run_"))
        self._folder.mkdir(parents=True, exist_ok=True)
        # The mark makes file names unique, because hosts may share the folder.
        self._mark = f"{socket.gethostname()}-{os.getpid()}-" if args.rdzv else ""
        events = self._folder.resolve() / f"{self._mark}events.jsonl"
        check_writable(events, "--log-dir")
        events.unlink(missing_ok=True)  # left by another run
        os.environ[_settings.EVENTS] = str(events)
        self._workers = [
            Worker(number, command_of(args), self._environment(), self._folder, self._mark)
            for number in range(args.first_worker, args.first_worker + args.nproc_per_node)
        ]
        self._waiting: dict[Worker, float] = {}  # restart times of workers that died
        self._statuses: dict[Worker, int] = {}  # final status of workers that are not restarted
        self._signals: list[tuple[float, int]] = []  # time and number of signals to end
        self._is_asked = False
        self._finished = False  # a worker has finished, so training has
        self._failed_late = False  # a worker failed after that

    def run(self) -> int:
        """Runs the workers and returns the exit status."""
        before = {number: signal.signal(number, self._on_signal) for number in signals.that_ask()}
        try:
            self._say_that_it_begins()
            for worker in self._workers:
                self._start(worker)
            while len(self._statuses) < len(self._workers):
                self._look()
                time.sleep(_POLL)
            self._hold_the_store()
        finally:
            for worker in self._workers:
                worker.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._end()

    # Prints new output of the workers, restarts those that are due, and forwards requests to end.
    def _look(self) -> None:
        now = time.monotonic()
        if not self._signals and self._args.stdin and addresses.is_left_alone():
            self._signals.append((now, signal.SIGHUP))
        for worker in self._workers:
            worker.show()
            if worker in self._statuses:
                continue
            if worker in self._waiting:
                if self._may_not_start():
                    self._statuses[worker] = worker.status
                elif now >= self._waiting[worker]:
                    self._start_again(worker)
            elif not worker.runs:
                worker.show(rest=True)
                self._on_end(worker)
        self._ask_workers(now)

    def _start_again(self, worker: Worker) -> None:
        del self._waiting[worker]
        try:
            self._start(worker)
        except OSError as error:  # such as a lack of memory, which must not end the others
            _log.event("not_started", f"worker {worker.number} was not started: {error}")
            self._waiting[worker] = time.monotonic() + _NEXT_TRY

    def _ask_workers(self, now: float) -> None:
        """After a signal, requests all workers to leave. After a second one, or after --grace,
        kills them."""
        if not self._signals:
            return
        first, number = self._signals[0]
        if not self._is_asked:
            self._is_asked = True
            name = signal.Signals(number).name
            _log.event("asked_to_end", f"{name}: workers leave after the step they are in")
        again = any(at - first > signals.SAME_REQUEST for at, _ in self._signals)
        for worker in self._workers:
            if again or now - first > self._args.grace:
                worker.kill()
            else:
                worker.ask_to_leave()

    def _may_not_start(self) -> bool:
        """Returns True if no worker is restarted. If all workers are down at once, the trained
        state is lost and a new worker would wait for them forever."""
        nobody = not any(one.runs for one in self._workers) and self._meeting.count(0) == 0
        return self._finished or bool(self._signals) or nobody

    # Schedules the restart of a worker that ended, or records its final status.
    def _on_end(self, worker: Worker) -> None:
        status = worker.status
        self._meeting.count(-1)
        if status != 0:  # a shell may have died alone, and its rank would train on
            worker.end_all_of_it(signal.SIGKILL)
        if status > 0 and status != LEFT:  # others may not have ended yet
            self._failed_late |= self._meeting.is_finished
        again = (
            status not in (0, LEFT)
            and not self._may_not_start()
            and worker.attempt < self._args.max_restarts
        )
        how = worker.outcome
        if again:
            how += f"; it is started again ({worker.attempt + 1} of {self._args.max_restarts})"
            self._waiting[worker] = worker.may_start_at
        else:
            self._failed_late |= self._finished and status not in (0, LEFT)
            self._finished |= status == 0
            self._statuses[worker] = status
        _log.event(
            "worker_ended",
            f"worker {worker.number} (pid {worker.pid}) {how}",
            worker=worker.number,
            worker_pid=worker.pid,
            status=status,
            again=again,
        )

    def _hold_the_store(self) -> None:
        """Keeps the store while workers of other launchers train, which may have joined by its
        address."""
        told, alone = False, self._args.rdzv is None and LEFT not in self._statuses.values()
        while not self._signals and not alone and self._meeting.is_needed:
            if not told:
                text = "no worker is left here; the store is held for those of others (Ctrl-C ends)"
                _log.event("holds_the_store", text)
            told = True
            time.sleep(_POLL)

    # Logs the result and returns the exit status.
    def _end(self) -> int:
        statuses = [self._statuses[worker] for worker in self._workers]
        if self._finished:
            status = int(self._failed_late)
        elif self._signals:
            status = LEFT
        else:
            # A worker's own failure is more informative than a kill.
            status = max(one if one > 0 else 0 for one in statuses) or 128 - min(statuses)
        text = "training has finished" if self._finished else "training has not finished"
        kept = self._args.log_dir is None and status != 0
        text += f"; logs are in {self._folder}" if kept else ""
        _log.event("ended", text, status=status)
        if self._args.log_dir is None and status == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        return status

    def _say_that_it_begins(self) -> None:
        workers = len(self._workers)
        holder = "this launcher holds" if self._meeting.held_here else "another one holds"
        _log.event(
            "launched",
            f"{counted(workers, 'worker meets', 'workers meet')} at {self._meeting.address}, "
            f"which {holder}; logs are in {self._folder}",
            address=self._meeting.address,
            workers=workers,
        )

    def _start(self, worker: Worker) -> None:
        worker.start()
        self._meeting.count(+1)
        _log.event(
            "worker_started",
            f"worker {worker.number} is process {worker.pid}",
            worker=worker.number,
            worker_pid=worker.pid,
            attempt=worker.attempt,
        )

    def _on_signal(self, number: int, _: object) -> None:
        self._signals.append((time.monotonic(), number))  # handled in the loop

    # Returns the environment of the workers.
    def _environment(self) -> dict[str, str]:
        args = self._args
        start = min(args.nproc_per_node, args.max_ranks or args.nproc_per_node)
        start = max(args.min_ranks, args.start_ranks or start)
        ours = {
            _settings.RENDEZVOUS: self._meeting.address,
            _settings.START_RANKS: str(start),
            _settings.MIN_RANKS: str(args.min_ranks),
            _settings.JOB: args.job,
            "LOCAL_WORLD_SIZE": str(args.nproc_per_node),
        }
        if args.resume:
            ours[_settings.RESUME] = "1"
        if args.max_ranks:
            ours[_settings.MAX_RANKS] = str(args.max_ranks)
        if args.nproc_per_node > 1 and "OMP_NUM_THREADS" not in os.environ:
            ours["OMP_NUM_THREADS"] = "1"  # else ranks compete for cores; torchrun does the same
        # An outer launcher, such as srun, may have set them.
        torchs = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        inherited = {k: v for k, v in os.environ.items() if k not in torchs}
        return {**inherited, **ours}


def run(args: argparse.Namespace) -> int:
    """Runs the command and returns its exit status.

    Raises:
        OSError: the store or the log folder is not available.
        ValueError: options that exclude each other, or a log folder that cannot be written.
    """
    arguments.complete(args)
    if args.world_size:
        return fixed_launcher.run(args)
    for name in ("min_ranks", "start_ranks"):
        if args.max_ranks and args.max_ranks < (value := getattr(args, name) or 1):
            option = name.replace("_", "-")
            raise ValueError(f"--max-ranks={args.max_ranks} is less than --{option}={value}")
    try:
        return Launcher(args).run()
    except dist.DistError as error:
        raise OSError(str(error)) from error


add_arguments = arguments.add
