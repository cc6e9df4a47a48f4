"""Implements ringdistrun --min-np: runs launchers on changing hosts while the job trains."""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch.distributed as dist

from torch_ringdist._launch import signals
from torch_ringdist._launch.discovery import Discovery
from torch_ringdist._launch.hosts import Share
from torch_ringdist._launch.remote_command import RemoteCommand, end_all
from torch_ringdist._units import counted
from torch_ringdist.elastic import _log
from torch_ringdist.elastic._leave import STATUS as LEFT
from torch_ringdist.elastic._progress import FINISHED, generations_of, progress_of

if TYPE_CHECKING:
    from torch_ringdist._C import BoundedStore

JOB = "ringdistrun"  # job name in the store
_POLL = 0.1  # seconds
_LEAVE = 40.0  # seconds for launchers to end; workers have 30


@dataclass(frozen=True)
class _Line:
    """A launcher with the slots of a host that it serves."""

    share: Share  # slots of the host, starting at `first`
    process: RemoteCommand
    leaves_by: float = float("inf")  # time at which it is killed


# Starts and ends launchers as hosts come and go, until training has finished. One thread.
class ElasticJob:
    def __init__(
        self,
        args: argparse.Namespace,
        store: BoundedStore,
        start: Callable[[Share], RemoteCommand],
    ) -> None:
        """Stores the settings; run() starts the job.

        Args:
            args: the checked command line.
            store: the store of the job, which this process runs.
            start: starts a launcher on a host, for workers numbered like the ranks of the share.
        """
        self._args, self._store, self._start = args, store, start
        script = args.host_discovery_script
        self._discovery = Discovery(script, args.slots_per_host) if script else None
        self._lines: dict[str, list[_Line]] = {}  # launchers by host, oldest first
        self._leaving: list[_Line] = []
        self._failed: set[str] = set()  # failed hosts, unused until they have been absent
        self._status = 0  # status of the first failed launcher
        self._generations = 0  # number of generations that have trained
        self._has_begun = self._finished = self._failed_late = False
        self._began_at = time.monotonic()

    def run(self) -> int:
        """Runs the job and returns its exit status.

        Returns:
            0 if training has finished and no rank has failed after that; else the status of the
            first failure.

        Raises:
            OSError: the program of --rsh does not exist.
        """
        asked: list[int] = []
        for number in signals.that_ask():
            signal.signal(number, lambda number, _: asked.append(number))
        try:
            while not asked:
                self._look()
                if not self._finished:
                    self._follow_hosts()
                self._collect()
                if (status := self._outcome()) is not None:
                    return status
                time.sleep(_POLL)
            return 128 + asked[0]
        finally:
            if self._discovery is not None:
                self._discovery.close()
            end_all([line.process for line in self._all_lines()], _LEAVE)

    def _look(self) -> None:
        """Reads the job's progress from the store. If the store is late, the previous values stay.
        This process runs the store, so it was probably stopped."""
        with contextlib.suppress(dist.DistError):
            self._finished |= progress_of(self._store, JOB) == FINISHED
            self._generations = generations_of(self._store, JOB)

    # Returns all launchers, including those that are leaving.
    def _all_lines(self) -> list[_Line]:
        return [*(line for lines in self._lines.values() for line in lines), *self._leaving]

    def _hosts(self) -> dict[str, int]:
        """Returns the available slots by host."""
        if self._discovery is None:
            return {share.host: share.count for share in self._args.shares}
        self._discovery.poll()
        return self._discovery.hosts

    # Starts and ends launchers to match the available hosts.
    def _follow_hosts(self) -> None:
        hosts = self._hosts()
        self._failed &= hosts.keys()
        # Hosts in use keep their slots.
        in_order = [host for host in self._lines if host in hosts]
        in_order += [host for host in hosts if host not in self._lines]
        left = self._args.max_np or sum(hosts.values())
        wanted = {}
        for host in in_order:
            # A failed host gets no new workers, but its running workers stay.
            slots = self._running(host) if host in self._failed else hosts[host]
            wanted[host] = min(slots, left)
            left -= wanted[host]
        for host in {**self._lines, **wanted}:
            self._make(host, wanted.get(host, 0))

    # Returns the number of slots of a host that launchers serve.
    def _running(self, host: str) -> int:
        lines = self._lines.get(host)
        return lines[-1].share.first + lines[-1].share.count if lines else 0

    def _make(self, host: str, slots: int) -> None:
        """Starts or ends launchers so that `slots` slots of the host have workers. A launcher keeps
        all its workers even if fewer are needed."""
        lines = self._lines.setdefault(host, [])
        while lines and lines[-1].share.first >= slots:
            line = lines.pop()
            asked = counted(line.share.count, "worker is", "workers are")
            _log.event("host_leaves", f"host {host}: {asked} asked to leave")
            line.process.ask_to_end()
            self._leaving.append(replace(line, leaves_by=time.monotonic() + _LEAVE))
        there = self._running(host)
        if slots > there:
            share = Share(host, there, slots - there)
            lines.append(_Line(share, self._start(share)))
            self._has_begun = True
        if not lines:
            del self._lines[host]

    def _collect(self) -> None:
        """Removes launchers that have ended, and kills those that are late in leaving."""
        for line in self._leaving:
            if time.monotonic() > line.leaves_by:
                line.process.end(0)  # its host may be gone
        self._leaving = [line for line in self._leaving if line.process.poll() is None]
        for host, lines in list(self._lines.items()):
            for line in [one for one in lines if one.process.poll() is not None]:
                lines.remove(line)
                self._on_end(host, line.process.poll() or 0)
            if not lines:
                del self._lines[host]

    # Records the exit status of a launcher.
    def _on_end(self, host: str, status: int) -> None:
        if status != LEFT:
            self._failed.add(host)
        self._look()
        if status in (0, LEFT):
            return
        self._failed_late |= self._finished
        _log.event("host_failed", f"host {host}: its launcher has ended with status {status}")
        self._status = self._status or (status if status > 0 else 128 - status)

    def _outcome(self) -> int | None:
        """Returns the exit status, or None while the job runs."""
        limit = self._args.reset_limit
        resets = self._generations - 1
        if limit is not None and resets > limit and not self._finished:
            _log.event(
                "reset_limit",
                f"the ranks have changed {counted(resets, 'time')}, and --reset-limit={limit}: "
                "the job ends",
            )
            return 1
        if self._lines or self._leaving:
            return None
        if self._finished:
            return int(self._failed_late)
        waits = self._discovery is not None and not self._has_begun
        if waits and time.monotonic() - self._began_at < self._args.elastic_timeout:
            return None
        _log.event("no_hosts", "no host is left" if self._has_begun else "there are no hosts")
        return self._status or 1
