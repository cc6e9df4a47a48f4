"""Brings a process into the group of a job: it creates the group, or joins the existing one.

The key "progress" in the store describes the state of the job. A process that finds none creates a
group of one rank, and all others join that group. So processes may start in any order, and no first
set of ranks has to be agreed on.

`forming ID` may be taken over by compare-and-set if the founder died before training began.
`training ID` may not be taken over, because a process that could not reach the group would train
beside it. When all ranks have left, the state is `left`, and the next process creates a group from
a checkpoint. `finished WORD` is valid if the hash of WORD is the seal of the last generation. Only
members of that generation have the WORD.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import torch.distributed as dist

import torch_ringdist
from torch_ringdist import _address
from torch_ringdist._errors import ArgumentError
from torch_ringdist._generation import open_client
from torch_ringdist._join import ElasticJob
from torch_ringdist.elastic import _log, _rank_state
from torch_ringdist.elastic._progress import (
    FINISHED,
    FORMING,
    LEFT,
    TRAINING,
    beats_of,
    is_finished,
    key,
    number_in,
    progress_of,
    seal,
)
from torch_ringdist.elastic._settings import Settings
from torch_ringdist.elastic._store import LIMIT, Writer, exchange, open_store, text_of

# Silence of a founder after which another process takes over. Also the interval of checks that the
# group to join still exists.
_SLICE = timedelta(seconds=10)
_FULL_POLL = 0.5  # seconds
_BEAT = 2.0  # longest interval of heartbeats, in seconds


class JoinCoordinator:
    """Brings this process into the group of a job, and keeps the job's state in the store."""

    word = ""  # secret of the members of the last generation that trained

    def __init__(self, settings: Settings) -> None:
        """Opens the store. Raises torch.distributed.DistError if it does not answer."""
        self._settings = settings
        self._terms: dict[str, str] = {}
        self._founder = ""  # founder of the group while this process may begin training
        self._id = uuid.uuid4().hex
        self._stopped: threading.Event | None = None  # stops the heartbeat thread
        self._writer = Writer()
        self._last: Callable[[], None] | None = None  # last write of go_on()
        self._place = (settings.host, settings.port, settings.is_own)
        self._store = open_store(*self._place, settings.rejoin_timeout)
        self._heard = 0.0  # time of the store's last answer during enter()

    def enter(self, terms: dict[str, str]) -> int:
        """Waits until this process is a member, and returns the number of the generation.

        Args:
            terms: values that all ranks must agree on.

        Raises:
            torch.distributed.DistBackendError: this process was not admitted within the
                rejoin_timeout, or was refused, with the reason. Also if the store was silent that
                long, or claims a finished job without the seal of its members.
            ArgumentError: this process has other entries, shapes or data than the others.
            SystemExit: the job has finished.
        """
        self._terms, self._heard = terms, time.monotonic()
        self._deadline = self._heard + self._limit
        tried: tuple[str, int] | None = None  # progress and heartbeats before a failed try
        while True:
            try:
                seen, beats = self._look(tried)
            except dist.DistNetworkError as error:
                if time.monotonic() - self._heard > self._limit:
                    raise dist.DistBackendError(str(error)) from error
                time.sleep(_FULL_POLL)
                continue
            if seen == self._mine:
                self._found()
                return 0
            if (generation := self._join(seen)) is not None:
                return generation
            tried = seen, beats

    def _look(self, tried: tuple[str, int] | None) -> tuple[str, int]:
        """Returns the progress and the heartbeats once the group has room for this process.

        If this process is to create the group, it returns at once. Raises as enter(), and
        DistNetworkError if the store does not answer.
        """
        seen = self._read() if tried else self._exchange("", self._mine)
        if tried is None and seen == LEFT:
            seen = self._exchange(LEFT, self._mine)
        # Takes over a founder that made no progress and sent no heartbeat since the last try.
        if tried and self._founder_in(seen) and tried == (seen, self._beats()):
            seen = self._exchange(seen, self._mine)
        if seen == self._mine:
            first = {"size": "1", "terms": json.dumps(self._terms), "newest": "-1"}
            for name, value in first.items():
                self._set(name, value)
            return seen, 0
        if is_finished(seen):
            self._end_too_late()
        if seen == LEFT:
            raise dist.DistBackendError(
                "ringdist: elastic: all ranks have left while this one wanted to join them; "
                "started again, it founds a group"
            )
        if not seen:  # a living group would have written it again
            raise dist.DistNetworkError(
                f"ringdist: elastic: the store has lost what job {self._settings.job!r} had "
                "written, and no rank has come back to it: has its launcher been started again? "
                "Start the job again, from a checkpoint"
            )
        came = time.monotonic()
        try:
            self._wait_for_room()
        finally:
            self._deadline += time.monotonic() - came  # waiting for room does not count
        self._refuse_strangers()
        return seen, self._beats()

    def _join(self, seen: str) -> int | None:
        """Joins the group and returns the generation; None if it was not admitted and should try
        again."""
        began = time.monotonic()
        try:
            _, report = torch_ringdist.join(
                _address.join_store(*self._place),
                timeout=_SLICE,
                options=self._settings.options,
                job=self._job,
            )
        except dist.DistBackendError:
            now = time.monotonic()
            if now > self._deadline or now - began < _SLICE.total_seconds() / 2:  # refused
                raise
            return None
        with contextlib.suppress(dist.DistNetworkError):
            seen = self._read()
        self._founder = self._founder_in(seen)
        return report.generation

    @property
    def _mine(self) -> str:
        return f"{FORMING} {self._id}"

    # True if the job has begun training.
    @property
    def is_training(self) -> bool:
        return progress_of(self._store, self._settings.job) == TRAINING

    def check_may_begin(self) -> None:
        """Raises as begin_training(), for a group that still waits for ranks."""
        seen = self._read()
        if not self._founder or self._founder not in seen:
            self._refuse_to_begin(seen)

    def begin_training(self) -> None:
        """Marks the job as training. Called by the lowest rank of a group in which no rank has
        trained.

        Raises:
            RuntimeError: the job has trained before, and no rank here has its state.
            SystemExit: the job has finished.
        """
        wanted = f"{TRAINING} {self._founder}"
        seen = self._exchange(f"{FORMING} {self._founder}", wanted) if self._founder else ""
        if seen == wanted:  # also if it began and was interrupted before the first step
            return
        self._refuse_to_begin(seen or self._read())

    def _refuse_to_begin(self, seen: str) -> NoReturn:
        if is_finished(seen):
            self._end_too_late()
        raise RuntimeError(
            "ringdist: elastic: nobody here has the state of this job, whose ranks are lost, or "
            f"train where this one does not reach them (it is {seen!r}): start it again, from a "
            "checkpoint"
        )

    # Exits with 0 if the job has finished; raises if the seal does not confirm that.
    def _end_too_late(self) -> NoReturn:
        if progress_of(self._store, self._settings.job) != FINISHED:
            raise dist.DistBackendError(
                f"ringdist: elastic: the store has that job {self._settings.job!r} has finished, "
                "and not from the members of its last generation: something else writes to "
                f"{self._key('progress')!r} in the store"
            )
        _log.event("too_late", "the job has finished; there is nothing to join")
        raise SystemExit(0)

    def has_trained(self) -> None:
        """Records that the group has trained with this process, so it can never begin again."""
        self._founder = ""

    def go_on(self, generation: int, size: int, terms: dict[str, str]) -> None:
        """Publishes a generation that trains. Its lowest rank calls it.

        Newcomers read the terms before they join. Writing happens in the background, so training
        does not wait for the store.

        Args:
            generation: number of the generation.
            size: number of its ranks.
            terms: values that all ranks must agree on.
        """
        told = {
            "size": str(size),
            "terms": json.dumps(terms),
            "seal": seal(self.word),
            "newest": str(generation),
        }
        counted = 0

        def write() -> None:
            nonlocal counted
            # The store may answer only after a later generation has begun, with or without this
            # process.
            if number_in(self._find("newest")) > generation:
                return
            # Counted once, even if a request is repeated.
            counted = counted or number_in(self._find("generations")) + 1
            for name, value in {**told, "generations": str(counted)}.items():
                if not self._writer.keeps(write):
                    return
                self._set(name, value)
            seen = self._read()
            # Restores "training" in three cases. All ranks but a late newcomer had left, the value
            # is wrong, or the store lost it and another process wants to create a group.
            while not seen.startswith(TRAINING) and self._writer.keeps(write):
                try:
                    seen = self._exchange(seen, f"{TRAINING} {self._id}")
                except dist.DistBackendError:  # the value is no text
                    self._set("progress", "")

        self._last = write
        self._writer.keep(write)

    def begin_beats(self) -> None:
        """Starts sending heartbeats. The lowest rank of the group calls it, possibly repeatedly.

        A thread sends them, because a step may take any time.
        """
        if self._stopped is None:
            self._stopped = threading.Event()
            threading.Thread(target=self._beat, args=(self._stopped,), daemon=True).start()

    # Stops the heartbeats.
    def end_beats(self) -> None:
        if self._stopped is not None:
            self._stopped.set()

    # Counts up the heartbeat. If the counter restarted, the store is a new one, and the last state
    # is written again.
    def _beat(self, stopped: threading.Event) -> None:
        pause, seen = min(_BEAT, self._limit / 8), 0
        while not stopped.is_set():
            with contextlib.suppress(dist.DistError):  # the store may be down for a while
                now = self._store.add(self._key("beat"), 1)
                last = self._last
                if (now == 1 or now < seen) and last is not None:  # a new store
                    self._writer.keep(last)
                seen = now
            stopped.wait(pause)

    # Publishes that the job has finished; waits at most LIMIT seconds.
    def finish(self) -> None:
        def write() -> None:
            self._set("seal", seal(self.word))
            self._set("progress", f"{FINISHED} {self.word}")

        self._end_with(write)

    # Publishes that all ranks have left; waits at most LIMIT seconds.
    def all_leave(self) -> None:
        def write() -> None:
            if progress_of(self._store, self._settings.job) != FINISHED:
                self._set("progress", LEFT)

        self._end_with(write)

    def _end_with(self, write: Callable[[], None]) -> None:
        """Replaces the pending write of go_on() by a final one."""
        self._last = None
        if not self._writer.keep(write, final=True).wait(LIMIT):
            _log.event(
                "no_store", "the store does not answer: nobody reads there how the job ended"
            )

    @property
    def _job(self) -> str:
        return ElasticJob(self._settings.job)

    @property
    def _limit(self) -> float:
        return self._settings.rejoin_timeout.total_seconds()

    def _beats(self) -> int:
        return beats_of(self._store, self._settings.job)

    # Creates a group of this process alone and admits newcomers.
    def _found(self) -> None:
        self._founder = self._id
        client = open_client(*self._place, self._settings.timeout)
        dist.init_process_group(
            "ringdist",
            # A process that takes over from a dead founder must not find its keys.
            store=dist.PrefixStore(self._key(f"group/{self._id}"), client),
            rank=0,
            world_size=1,
            timeout=self._settings.timeout,
            pg_options=self._settings.options,
        )
        dist.barrier()  # only a formed group can admit newcomers
        torch_ringdist.admit(self._job, self._settings.max_ranks or None)

    def _wait_for_room(self) -> None:
        """Waits while the group is full. Raises if no heartbeat comes for the rejoin_timeout."""
        most, told = self._settings.max_ranks, False
        beats, since = -1, 0.0
        while most and (size := self._find("size")):
            seen, now = self._read(), self._beats()
            ended = not seen or seen == LEFT or is_finished(seen)
            if ended or number_in(size) < most:
                return
            if now != beats:
                beats, since = now, time.monotonic()
            silent = time.monotonic() - since
            if self._founder_in(seen):
                if silent > _SLICE.total_seconds():  # enter() then replaces the founder
                    return
            # Also if another process waited in vain and no heartbeat came since.
            elif silent > self._limit or self._find("silent") == str(beats):
                self._set("silent", str(beats))
                raise dist.DistBackendError(
                    f"ringdist: elastic: this process waits for room, as {most} ranks are there "
                    "(--max-ranks), but they have given no sign of life for "
                    f"{self._limit:g} s (rejoin_timeout). If they are lost, so is what they had "
                    "trained: end the job, and start it again, from a checkpoint"
                )
            if not told:
                _log.event("full", f"{most} ranks are there, which is the most: this one waits")
            told = True
            time.sleep(_FULL_POLL)

    def _refuse_strangers(self) -> None:
        if terms := self._find("terms"):
            theirs = _rank_state.terms_in(terms)
            if text := _rank_state.difference(self._terms, "this process", theirs, "the group"):
                raise ArgumentError(f"ringdist: elastic: {text}")

    @staticmethod
    def _founder_in(progress: str) -> str:
        """Returns the founder's id while its group has not trained; else ""."""
        state, _, founder = progress.partition(" ")
        return founder if state == FORMING else ""

    # Requests to the store. All raise torch.distributed.DistNetworkError if it does not answer.

    def _exchange(self, expected: str, wanted: str) -> str:
        """Compare-and-set of the progress; returns the value afterwards."""
        return exchange(self._store, self._key("progress"), expected, wanted)

    # Returns the progress and records the time of the answer.
    def _read(self) -> str:
        seen = self._find("progress")
        if seen:  # a store without any data counts as silent
            self._heard = time.monotonic()
        return seen

    def _find(self, name: str) -> str:
        return text_of(self._store, self._key(name))

    def _set(self, name: str, value: str) -> None:
        self._store.set(self._key(name), value)

    def _key(self, name: str) -> str:
        return key(self._settings.job, name)
