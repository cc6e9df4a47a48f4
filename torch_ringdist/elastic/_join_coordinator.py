"""How a process comes into the group: it founds it, or joins the one that is there.

One key in the store says how far the job is. Who finds none founds a group of one rank; everybody
else joins that, so processes may start in any order, and there is no first set of ranks to agree
on. `forming ID` may be taken over, by compare-and-set, where the founder has died before training
began. It becomes `training ID`, which may not: whoever could not reach the group would train beside
it. When all have left it is `left`, and the next one founds again, from a checkpoint. `finished
WORD` holds where the hash of WORD is the seal of the last generation: its members alone have it.
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
from torch_ringdist._generation import open_tcp_store
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
    progress_of,
    seal,
)
from torch_ringdist.elastic._settings import Settings
from torch_ringdist.elastic._store import LIMIT, Writer, open_store

# How long a founder may be silent before another one takes its place, and between two looks at
# whether there is still something to join.
_SLICE = timedelta(seconds=10)
_FULL_POLL = 0.5  # seconds
_BEAT = 2.0  # seconds between two signs of life of a group, at most


class JoinCoordinator:
    """Of this process into the group of a job.

    Attributes:
        word: the members of the last generation that trained have it, and nobody else.
    """

    word = ""

    def __init__(self, settings: Settings) -> None:
        """Finds the store. Raises torch.distributed.DistError where it is not there."""
        self._settings = settings
        self._terms: dict[str, str] = {}
        self._founder = ""  # of the group, as long as this process may begin its training
        self._id = uuid.uuid4().hex
        self._stopped: threading.Event | None = None  # of the thread that gives signs of life
        self._writer = Writer()
        self._last: Callable[[], None] | None = None  # that go_on() has given to it
        self._store = open_store(settings.host, settings.port, settings.rejoin_timeout)
        self._heard = 0.0  # when the store has last answered, while this process comes

    def enter(self, terms: dict[str, str]) -> int:
        """Returns when this process is a member, of what generation.

        Args:
            terms: what all ranks must agree on.

        Raises:
            torch.distributed.DistBackendError: not let in within the rejoin_timeout, or refused,
                and why; the store was silent for so long, or says that the job has finished, and
                its members did not.
            ArgumentError: this process has other entries, shapes or data than the others.
            SystemExit: the job has finished.
        """
        self._terms, self._heard = terms, time.monotonic()
        self._deadline = self._heard + self._limit
        tried: tuple[str, int] | None = None  # what the store had before a try that came to nothing
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
        """Returns the progress, and the signs of life, as soon as there is room; at once where this
        process is to found the group. Raises as enter(), and DistNetworkError."""
        seen = self._read() if tried else self._exchange("", self._mine)
        if tried is None and seen == LEFT:
            seen = self._exchange(LEFT, self._mine)
        # It has not come to anything in all that time, and nobody waits there.
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
        if not seen:  # the group writes it again
            raise dist.DistNetworkError(
                f"ringdist: elastic: the store has lost what job {self._settings.job!r} had "
                "written, and no rank has come back to it: has its launcher been started again? "
                "Start the job again, from a checkpoint"
            )
        came = time.monotonic()
        try:
            self._wait_for_room()
        finally:
            self._deadline += time.monotonic() - came  # nobody is late while there is no room
        self._refuse_strangers()
        return seen, self._beats()

    def _join(self, seen: str) -> int | None:
        """The generation; None: not let in, and it is to be tried again."""
        began = time.monotonic()
        try:
            _, report = torch_ringdist.join(
                _address.join(self._settings.host, self._settings.port),
                timeout=_SLICE,
                options=self._settings.options,
                job=self._job,
            )
        except dist.DistBackendError:
            now = time.monotonic()
            if now > self._deadline or now - began < _SLICE.total_seconds() / 2:  # it is refused
                raise
            return None
        with contextlib.suppress(dist.DistNetworkError):
            seen = self._read()
        self._founder = self._founder_in(seen)
        return report.generation

    @property
    def _mine(self) -> str:
        return f"{FORMING} {self._id}"

    @property
    def is_training(self) -> bool:
        return progress_of(self._store, self._settings.job) == TRAINING

    def check_may_begin(self) -> None:
        """As begin_training(), for a group that waits for others before."""
        seen = self._read()
        if not self._founder or self._founder not in seen:
            self._refuse_to_begin(seen)

    def begin_training(self) -> None:
        """By the lowest rank of a group of which nobody has trained.

        Raises:
            RuntimeError: the job has trained before, and nobody here knows what.
            SystemExit: the job has finished.
        """
        wanted = f"{TRAINING} {self._founder}"
        seen = self._exchange(f"{FORMING} {self._founder}", wanted) if self._founder else ""
        if seen == wanted:  # also where it had begun, and was interrupted before the first step
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
        """The group has, with this process: it can never again be one that begins."""
        self._founder = ""

    def go_on(self, generation: int, size: int, terms: dict[str, str]) -> None:
        """By the lowest rank of a generation that trains; of that size. Newcomers look at the terms
        before they knock. Training does not wait until the store has it."""
        told = {
            "size": str(size),
            "terms": json.dumps(terms),
            "seal": seal(self.word),
            "newest": str(generation),
        }
        counted = 0

        def write() -> None:
            nonlocal counted
            # The store may answer when others have gone on, without this process or with it.
            newest = self._find("newest")
            if newest.isdigit() and int(newest) > generation:
                return
            # Once, however often a request is repeated.
            counted = counted or int(self._find("generations") or 0) + 1
            for name, value in {**told, "generations": str(counted)}.items():
                if not self._writer.keeps(write):
                    return
                self._set(name, value)
            seen = self._read()
            # All had left but for one that came as they went; or it says what is not so; or the
            # store has lost what it had, and somebody wants to found another group.
            while not seen.startswith(TRAINING) and self._writer.keeps(write):
                seen = self._exchange(seen, f"{TRAINING} {self._id}")

        self._last = write
        self._writer.keep(write)

    def begin_beats(self) -> None:
        """Give signs of life from now on. The lowest rank of the group calls it, again and again.

        A thread does it, because a step may take any time.
        """
        if self._stopped is None:
            self._stopped = threading.Event()
            threading.Thread(target=self._beat, args=(self._stopped,), daemon=True).start()

    def end_beats(self) -> None:
        if self._stopped is not None:
            self._stopped.set()

    def _beat(self, stopped: threading.Event) -> None:
        pause, seen = min(_BEAT, self._limit / 8), 0
        while not stopped.is_set():
            with contextlib.suppress(dist.DistError):  # the store does not answer, or not now
                now = self._store.add(self._key("beat"), 1)
                last = self._last
                if (now == 1 or now < seen) and last is not None:  # it is another one
                    self._writer.keep(last)
                seen = now
            stopped.wait(pause)

    def finish(self) -> None:
        def write() -> None:
            self._set("seal", seal(self.word))
            self._set("progress", f"{FINISHED} {self.word}")

        self._end_with(write)

    def all_leave(self) -> None:
        def write() -> None:
            if progress_of(self._store, self._settings.job) != FINISHED:
                self._set("progress", LEFT)

        self._end_with(write)

    def _end_with(self, write: Callable[[], None]) -> None:
        """In place of what go_on() has to write yet."""
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

    def _found(self) -> None:
        self._founder = self._id
        place = (self._settings.host, self._settings.port)
        client = open_tcp_store(place, self._settings.timeout)
        dist.init_process_group(
            "ringdist",
            # Whoever takes over from a founder that has died finds nothing of its.
            store=dist.PrefixStore(self._key(f"group/{self._id}"), client),
            rank=0,
            world_size=1,
            timeout=self._settings.timeout,
            pg_options=self._settings.options,
        )
        dist.barrier()  # only a group that has formed can let others in
        torch_ringdist.admit(self._job, self._settings.max_ranks or None)

    def _wait_for_room(self) -> None:
        """However long that takes, while the group gives signs of life.

        Raises:
            torch.distributed.DistBackendError: it gives none for the rejoin_timeout.
        """
        most, told = self._settings.max_ranks, False
        beats, since = -1, 0.0
        while most and (size := self._find("size")):
            seen, now = self._read(), self._beats()
            ended = not seen or seen == LEFT or is_finished(seen)
            if ended or int(size) < most:
                return
            if now != beats:
                beats, since = now, time.monotonic()
            silent = time.monotonic() - since
            if self._founder_in(seen):
                if silent > _SLICE.total_seconds():  # enter() takes the place of its founder
                    return
            # Or another process has waited in vain, and there was no sign of life since.
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
            theirs = json.loads(terms)
            if text := _rank_state.difference(self._terms, "this process", theirs, "the group"):
                raise ArgumentError(f"ringdist: elastic: {text}")

    @staticmethod
    def _founder_in(progress: str) -> str:
        """While its group has not trained; else empty."""
        state, _, founder = progress.partition(" ")
        return founder if state == FORMING else ""

    # Requests to the store. All raise torch.distributed.DistNetworkError: it does not answer.

    def _exchange(self, expected: str, wanted: str) -> str:
        """Compare-and-set of the progress; what is there afterwards."""
        return self._store.compare_set(self._key("progress"), expected, wanted)

    def _read(self) -> str:
        seen = self._find("progress")
        if seen:  # one that has lost all is as good as silent
            self._heard = time.monotonic()
        return seen

    def _find(self, name: str) -> str:
        """Empty where nothing is there."""
        return self._store.find(self._key(name)) or ""

    def _set(self, name: str, value: str) -> None:
        self._store.set(self._key(name), value)

    def _key(self, name: str) -> str:
        return key(self._settings.job, name)
