"""How a process comes into the group: it founds it, or joins the one that is there.

One key in the store says how far the job is. Who finds none founds a group of one rank; everybody
else joins that, so processes may start in any order, and there is no first set of ranks to agree
on. `forming ID` may be taken over, by compare-and-set, where the founder has died before training
began; `training` may not: whoever could not reach the group would train beside it.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from datetime import timedelta

import torch.distributed as dist

import torch_ringdist
from torch_ringdist.elastic._settings import Settings

# How long a founder may be silent before another one takes its place, and between two looks at
# whether there is still something to join.
_SLICE = timedelta(seconds=10)
_TRAINING, _FINISHED = "training", "finished"
_FULL_POLL = 0.5  # seconds


class Entry:
    """Of this process into the group of a job."""

    def __init__(self, settings: Settings) -> None:
        """Finds the store. Raises torch.distributed.DistError where it is not there."""
        self._settings = settings
        self._id = uuid.uuid4().hex
        base = f"ringdist/elastic/{settings.job}"
        self._progress, self._size, self._group = f"{base}/progress", f"{base}/size", f"{base}/"
        self._store = dist.TCPStore(
            settings.host,
            settings.port,
            is_master=False,
            wait_for_workers=False,
            timeout=settings.rejoin_timeout,
        )

    def enter(self) -> int | None:
        """Returns when this process is a member, of what generation; None: the job has finished.

        Raises:
            torch.distributed.DistBackendError: not let in within the rejoin_timeout, and why.
        """
        deadline = time.monotonic() + self._settings.rejoin_timeout.total_seconds()
        mine = f"forming {self._id}"
        seen = self._exchange("", mine)
        while seen != mine:
            if seen == _FINISHED:
                return None
            self._wait_for_room(deadline)
            try:
                _, report = torch_ringdist.join(
                    self._store, timeout=_SLICE, options=self._settings.options, job=self._job
                )
                return report.generation
            except dist.DistBackendError:
                if time.monotonic() > deadline:
                    raise
            before, seen = seen, self._read()
            # It has not come to anything in all that time.
            if seen == before and seen != _TRAINING:
                seen = self._exchange(seen, mine)
        self._found()
        return 0

    def begin_training(self) -> None:
        """By the lowest rank of a group of which nobody has trained.

        Raises:
            RuntimeError: the job has trained before, and nobody here knows what.
        """
        seen = self._read()
        while seen.startswith("forming "):
            before, seen = seen, self._exchange(seen, _TRAINING)
            if seen == _TRAINING:
                return
            if seen == before:
                break
        raise RuntimeError(
            "ringdist: elastic: all ranks that had trained are lost, so nobody has the state of "
            f"this job any more (it is {seen!r}): start it again, from a checkpoint"
        )

    def say_size(self, size: int) -> None:
        self._tell(self._size, str(size))

    def finish(self) -> None:
        self._tell(self._progress, _FINISHED)

    @property
    def _job(self) -> str:
        return f"elastic/{self._settings.job}"

    def _found(self) -> None:
        dist.init_process_group(
            "ringdist",
            # Whoever takes over from a founder that has died finds nothing of its.
            store=dist.PrefixStore(f"{self._group}{self._id}", self._store),
            rank=0,
            world_size=1,
            timeout=self._settings.timeout,
            pg_options=self._settings.options,
        )
        dist.barrier()  # only a group that has formed can let others in
        torch_ringdist.admit(self._job)

    def _wait_for_room(self, deadline: float) -> None:
        most = self._settings.max_ranks
        while most and self._store.check([self._size]):
            if int(self._store.get(self._size)) < most or self._read() == _FINISHED:
                return
            if time.monotonic() > deadline:
                raise dist.DistBackendError(
                    f"ringdist: elastic: the group has {most} ranks, which is the most it takes, "
                    "and has had since this one came"
                )
            time.sleep(_FULL_POLL)

    def _exchange(self, expected: str, wanted: str) -> str:
        """Compare-and-set; what is there afterwards."""
        return self._store.compare_set(self._progress, expected, wanted).decode()

    def _read(self) -> str:
        return self._store.get(self._progress).decode()

    def _tell(self, key: str, value: str) -> None:
        # The store may be lost by now; the group goes on without it, and nobody can come that way.
        with contextlib.suppress(RuntimeError):
            self._store.set(key, value)
