"""Runs a fixed number of ranks on this host with torchrun's variables.

If a rank fails on any host, the ranks of all hosts end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import torch.distributed as dist

from torch_ringdist import _address
from torch_ringdist._credentials import has_key
from torch_ringdist._launch import addresses, signals
from torch_ringdist._launch.worker import Worker, command_of
from torch_ringdist._output_paths import check_writable
from torch_ringdist._rendezvous import STORE_OF_RANKS, address_of_ranks
from torch_ringdist._served_store import serve_for_job
from torch_ringdist.elastic import _log
from torch_ringdist.elastic._progress import number_in
from torch_ringdist.elastic._store import exchange, open_store, text_of

_POLL = 0.05  # seconds
_ASK = 0.5  # seconds between two checks for failures on other hosts
_MEET = 60.0  # seconds to wait for the launcher of rank 0
_LEAVE = 5.0  # seconds for launchers to read a failure, or --grace if that is more
# Store keys: the number of ranks that have ended, MASTER_PORT if there is a key, and the first
# failure as "STATUS TEXT". All launchers that still have ranks exit with that status, because any
# of them may be the one with the caller's exit status.
_ENDED = "ringdist/ranks_ended"
_MASTER_PORT = "ringdist/master_port"
_FAILED = "ringdist/failed"


# Starts the ranks of this host, waits for them and for failures on other hosts. One thread.
class FixedLauncher:
    def __init__(self, args: argparse.Namespace) -> None:
        """Opens the store, and hosts it if rank 0 runs here. Raises OSError or
        torch.distributed.DistError if the store is not available, ValueError if the log folder
        cannot be written."""
        self._args = args
        host, port = args.rdzv or ("127.0.0.1", 0)
        self._holds = args.first_rank == 0
        if self._holds:
            self._held = serve_for_job(host, port)
            port = self._held.port
        elif not has_key():
            addresses.wait_for(host, port)
        self._store = open_store(host, port, has_key())
        self._reserved = socket.socket()  # keeps others from MASTER_PORT until rank 0 listens there
        self._of_store = self._store_variables(host, port)
        self._folder = args.log_dir or Path(tempfile.mkdtemp(prefix="ringdist_run_"))
        self._folder.mkdir(parents=True, exist_ok=True)
        check_writable(self._folder / f"worker-{args.first_rank}.0.log", "--log-dir")
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
        self._asked_at = 0.0

    def _store_variables(self, host: str, port: int) -> dict[str, str]:
        """Returns the variables by which ranks find the store at an address."""
        if not has_key():
            # Ranks use this store, and none serves one.
            agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
            return {"MASTER_ADDR": host, "MASTER_PORT": str(port), **agent}
        # Groups of other backends use the TCPStore that rank 0 serves at MASTER_PORT for them.
        if self._holds:
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind(("", 0))
            self._store.set(_MASTER_PORT, str(self._reserved.getsockname()[1]))
        until = time.monotonic() + _MEET
        while not (master_port := text_of(self._store, _MASTER_PORT)):
            if time.monotonic() > until:
                raise dist.DistNetworkError(
                    f"ringdist: the store at {_address.join(host, port)} has no {_MASTER_PORT}: "
                    "does the launcher of rank 0 have the same version?"
                )
            time.sleep(_POLL)
        return {
            "MASTER_ADDR": host,
            "MASTER_PORT": master_port,
            STORE_OF_RANKS: address_of_ranks(host, port, "ranks", f"{host}:{master_port}"),
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }

    # Returns the environment of a rank, with the variables of torchrun.
    def _environment(self, local_rank: int) -> dict[str, str]:
        args = self._args
        ours = {
            "RANK": str(args.first_rank + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(args.world_size),
            "LOCAL_WORLD_SIZE": str(args.nproc_per_node),
            **self._of_store,
        }
        if args.horovod:  # scripts for Horovod may read them before hvd.init()
            torchs = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
            theirs = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
            ours |= {f"HOROVOD_{b}": ours[a] for a, b in zip(torchs, theirs, strict=True)}
        usual = {"PYTHONUNBUFFERED": "1"}
        if args.nproc_per_node > 1:
            usual["OMP_NUM_THREADS"] = "1"
        return {**usual, **os.environ, **ours}

    # Starts the ranks. Other hosts learn of a command that cannot be started.
    def _start(self) -> None:
        try:
            for worker in self._workers:
                worker.start()
        except OSError as error:
            self._fail(str(error), 127)
            raise

    def run(self) -> int:
        """Runs the ranks. Returns 0, or the status of the first rank that failed on any host."""
        before = {number: signal.signal(number, self._on_signal) for number in signals.that_ask()}
        try:
            self._start()
            status = self._wait()
            self._part()
        finally:
            for worker in self._workers:
                worker.end_all_of_it(signal.SIGKILL)
                worker.show(rest=True)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._args.log_dir is None:
            if status == 0:
                shutil.rmtree(self._folder, ignore_errors=True)
            else:
                _log.event("ended", f"logs are in {self._folder}", status=status)
        return status

    def _on_signal(self, number: int, _: object) -> None:
        self._signals.append(number)

    # Waits until all ranks have ended or the job fails; returns the exit status.
    def _wait(self) -> int:
        while True:
            for worker in self._workers:
                worker.show()
            ended = [worker for worker in self._workers if not worker.runs]
            failed = next((worker for worker in ended if worker.status != 0), None)
            if failed is not None:
                text = f"rank {failed.number} (pid {failed.pid}) {failed.outcome}"
                return self._fail(text, failed.status if failed.status > 0 else 128 - failed.status)
            if self._signals or self._is_left_alone():
                self._end_ranks()
                return 128 + (self._signals or [signal.SIGHUP])[0]
            if elsewhere := self._failed_elsewhere():
                status, text = _failure(elsewhere)
                _log.event("failed", f"{text}: all end")
                self._end_ranks()
                return status
            if len(ended) == len(self._workers):
                return 0
            time.sleep(_POLL)

    # Publishes a failure and ends the ranks. If another host failed first, returns its status.
    def _fail(self, text: str, status: int) -> int:
        _log.event("failed", f"{text}: all end")
        with contextlib.suppress(dist.DistError):
            ours = f"{status} {text} on host {socket.gethostname()}"
            status, first = _failure(exchange(self._store, _FAILED, "", ours))
            if first not in ours:
                _log.event("failed", f"{first} failed first: status {status}")
        self._end_ranks()
        return status

    def _failed_elsewhere(self) -> str:
        """Returns the failure in the store, or "" if there is none or the check is not due."""
        now = time.monotonic()
        if now - self._asked_at < _ASK or self._args.nproc_per_node == self._args.world_size:
            return ""
        self._asked_at = now
        with contextlib.suppress(dist.DistError):
            return text_of(self._store, _FAILED)
        return ""

    def _is_left_alone(self) -> bool:
        return self._args.stdin and addresses.is_left_alone()

    # Sends SIGTERM to all ranks and gives them --grace to end; another signal ends the wait.
    def _end_ranks(self) -> None:
        begin = time.monotonic()
        for worker in self._workers:
            worker.end_all_of_it(signal.SIGTERM)
        asked = len(self._signals)
        while any(worker.runs for worker in self._workers):
            waited = time.monotonic() - begin
            if waited > self._args.grace:
                return
            if waited < signals.SAME_REQUEST:
                asked = len(self._signals)
            elif len(self._signals) > asked:
                return
            for worker in self._workers:
                worker.show()
            time.sleep(_POLL)

    def _part(self) -> None:
        """Keeps the store until the ranks of all hosts have ended; after a failure for at most
        _LEAVE or --grace."""
        args, until = self._args, time.monotonic() + max(_LEAVE, self._args.grace)
        with contextlib.suppress(dist.DistError):
            self._store.add(_ENDED, args.nproc_per_node)
            while self._holds and self._store.count(_ENDED) < args.world_size:
                has_failed = bool(text_of(self._store, _FAILED) or self._signals)
                if self._is_left_alone() or (has_failed and time.monotonic() > until):
                    return
                time.sleep(_POLL)


# Parses a failure in the store into status and text. The status is 1 for texts of something else.
def _failure(kept: str) -> tuple[int, str]:
    status, _, text = kept.partition(" ")
    return (number_in(status), text) if 1 <= number_in(status) <= 255 else (1, kept)


def run(args: argparse.Namespace) -> int:
    """Runs ``run --world-size`` and returns its exit status.

    Raises:
        OSError: the store or the log folder is not available.
        ValueError: options that exclude each other, or a log folder that cannot be written.
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
