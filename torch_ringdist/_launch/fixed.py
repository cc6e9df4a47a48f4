"""Keeps the ranks of this host going while all ranks of the job do: as many as were asked for, with
torchrun's variables. The first that fails ends all."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch.distributed as dist

from torch_ringdist._launch import reach, signals
from torch_ringdist._launch.worker import Worker, command_of
from torch_ringdist.elastic import _log

_POLL = 0.05  # seconds
_LEAVE = 5.0  # seconds that ranks have to end when one has failed
_ENDED = "ringdist/launchers_ended"


class FixedLauncher:
    def __init__(self, args: argparse.Namespace) -> None:
        """Raises OSError or torch.distributed.DistError where the store is not to be had."""
        self._args = args
        host, port = args.rdzv or ("127.0.0.1", 0)
        self._holds = args.first_rank == 0
        self._store: dist.TCPStore | None = None
        if self._holds:
            self._store = dist.TCPStore(host, port, is_master=True, wait_for_workers=False)
            port = self._store.port
        else:
            reach.wait_for(host, port)
        self._address = (host, port)
        self._folder = args.log_dir or Path(tempfile.mkdtemp(prefix="ringdist_run_"))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._workers = [
            Worker(
                args.first_rank + i,
                command_of(args),
                self._environment(i),
                self._folder,
                mark="",
            )
            for i in range(args.nproc_per_node)
        ]
        self._signals: list[int] = []

    def _environment(self, local_rank: int) -> dict[str, str]:
        args, (host, port) = self._args, self._address
        ours = {
            "RANK": str(args.first_rank + local_rank),
            "WORLD_SIZE": str(args.world_size),
            "LOCAL_WORLD_SIZE": str(args.nproc_per_node),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # ranks ask for it, and none makes one
        }
        if args.nproc_per_node > 1 and "OMP_NUM_THREADS" not in os.environ:
            ours["OMP_NUM_THREADS"] = "1"
        return {**os.environ, **ours}

    def run(self) -> int:
        """The exit status: 0, or that of the first rank that has failed."""
        before = {number: signal.signal(number, self._on_signal) for number in signals.that_ask()}
        try:
            for worker in self._workers:
                worker.start()
            status = self._wait()
            if status == 0:
                self._part()
        finally:
            for worker in self._workers:
                worker.kill()
                worker.show(rest=True)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._args.log_dir is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        return status

    def _on_signal(self, number: int, _: object) -> None:
        self._signals.append(number)

    def _show(self) -> None:
        for worker in self._workers:
            worker.show()

    def _wait(self) -> int:
        while True:
            self._show()
            ended = [worker for worker in self._workers if not worker.runs]
            failed = next((worker for worker in ended if worker.status != 0), None)
            if failed is not None:
                text = f"rank {failed.number} (pid {failed.pid}) {failed.outcome}: all end"
                _log.event("failed", text)
                self._end_the_others()
                return failed.status if failed.status > 0 else 128 - failed.status
            if self._signals or self._is_left_alone():
                self._end_the_others()
                return 128 + (self._signals or [signal.SIGHUP])[0]
            if len(ended) == len(self._workers):
                return 0
            time.sleep(_POLL)

    def _is_left_alone(self) -> bool:
        """With --stdin: who has started this has closed it, or has ended."""
        if not self._args.stdin:
            return False
        ready, _, _ = select.select([sys.stdin], [], [], 0)
        return bool(ready) and not os.read(sys.stdin.fileno(), 4096)

    def _end_the_others(self) -> None:
        deadline = time.monotonic() + _LEAVE
        for worker in self._workers:
            worker.ask_to_leave()
        while any(worker.runs for worker in self._workers) and time.monotonic() < deadline:
            self._show()
            time.sleep(_POLL)

    def _part(self) -> None:
        """The store is there until the ranks of all hosts have ended."""
        host, port = self._address
        with contextlib.suppress(dist.DistError):
            store = self._store or dist.TCPStore(host, port, wait_for_workers=False)
            ended = store.add(_ENDED, self._args.nproc_per_node)
            while self._holds and ended < self._args.world_size and not self._signals:
                if self._is_left_alone():
                    return
                time.sleep(_POLL)
                ended = store.add(_ENDED, 0)


def run(args: argparse.Namespace) -> int:
    """``run --world-size``; returns its exit status.

    Raises:
        OSError: no store, no folder for the logs.
        ValueError: arguments that do not go together.
    """
    first, last = args.first_rank, args.first_rank + args.nproc_per_node
    if last > args.world_size:
        raise ValueError(
            f"--first-rank={first} and --nproc-per-node={args.nproc_per_node} are ranks up to "
            f"{last - 1}, of --world-size={args.world_size}"
        )
    if args.rdzv is None and last - first < args.world_size:
        raise ValueError("--rdzv must say where rank 0's host holds the store: others have ranks")
    try:
        return FixedLauncher(args).run()
    except dist.DistError as error:
        raise OSError(str(error)) from error
