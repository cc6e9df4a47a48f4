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
import hashlib
import json
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import torch.distributed as dist

import torch_ringdist
from torch_ringdist._errors import ArgumentError
from torch_ringdist._join import ElasticJob
from torch_ringdist.elastic import _log, _standing
from torch_ringdist.elastic._settings import Settings
from torch_ringdist.elastic._store import LIMIT, BoundedStore

# How long a founder may be silent before another one takes its place, and between two looks at
# whether there is still something to join.
_SLICE = timedelta(seconds=10)
_FORMING, TRAINING, FINISHED, _LEFT = "forming", "training", "finished", "left"
_FULL_POLL = 0.5  # seconds
_BEAT = 2.0  # seconds between two signs of life of a group, at most


def progress_of(store: dist.Store | BoundedStore, job: str) -> str:
    """How far the job is; empty before anybody has come. TRAINING also where somebody who was no
    member of the last generation has written that the job has finished."""
    key, seal = _key(job, "progress"), _key(job, "seal")
    state, _, word = store.get(key).decode().partition(" ") if store.check([key]) else ("", "", "")
    if state == FINISHED and not (store.check([seal]) and store.get(seal).decode() == _seal(word)):
        return TRAINING
    return state


def _is_finished(progress: str) -> bool:
    """Whether it says so; progress_of() checks that it is true."""
    return progress.partition(" ")[0] == FINISHED


def _seal(word: str) -> str:
    return hashlib.blake2b(word.encode(), digest_size=16).hexdigest()


def generations_of(store: dist.Store | BoundedStore, job: str) -> int:
    """How many have trained."""
    return store.add(_key(job, "generations"), 0)


def beats_of(store: dist.Store | BoundedStore, job: str) -> int:
    """Signs of life that the job's group has given. It lives while they become more."""
    return store.add(_key(job, "beat"), 0)


def workers_of(store: dist.Store | BoundedStore, job: str, change: int) -> int:
    """How many processes launchers have running, after this change."""
    return store.add(_key(job, "workers"), change)


class Entry:
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
        names = "progress size terms seal newest beat silent group generations"
        (
            self._progress,
            self._size,
            self._terms_key,
            self._seal_key,
            self._newest,
            self._beat_key,
            self._silent,
            self._group,
            self._count,
        ) = (_key(settings.job, name) for name in names.split())
        self._store = BoundedStore(settings.host, settings.port, settings.rejoin_timeout)

    def enter(self, terms: dict[str, str]) -> int:
        """Returns when this process is a member, of what generation.

        Args:
            terms: what all ranks must agree on.

        Raises:
            torch.distributed.DistBackendError: not let in within the rejoin_timeout, or refused,
                and why; the store says that the job has finished, and its members did not.
            ArgumentError: this process has other entries, shapes or data than the others.
            SystemExit: the job has finished.
        """
        self._terms = terms
        mine = f"{_FORMING} {self._id}"
        seen = self._exchange("", mine)
        if seen == _LEFT:
            seen = self._exchange(_LEFT, mine)
        deadline = time.monotonic() + self._settings.rejoin_timeout.total_seconds()
        while seen != mine:
            if _is_finished(seen):
                self._end_too_late()
            if seen == _LEFT:
                raise dist.DistBackendError(
                    "ringdist: elastic: all ranks have left while this one wanted to join them; "
                    "started again, it founds a group"
                )
            came = time.monotonic()
            self._wait_for_room()
            deadline += time.monotonic() - came  # nobody is late while there is no room
            self._refuse_strangers()
            began, beats = time.monotonic(), self._beats()
            try:
                _, report = torch_ringdist.join(
                    self._store.address,
                    timeout=_SLICE,
                    options=self._settings.options,
                    job=self._job,
                )
                self._founder = self._founder_in(self._read())
                return report.generation
            except dist.DistBackendError:
                now = time.monotonic()
                if now > deadline or now - began < _SLICE.total_seconds() / 2:  # it is refused
                    raise
            before, seen = seen, self._read()
            # It has not come to anything in all that time, and nobody waits there.
            if seen == before and self._founder_in(seen) and self._beats() == beats:
                seen = self._exchange(seen, mine)
        self._founder = self._id
        self._found()
        return 0

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
        seen = self._exchange(f"{_FORMING} {self._founder}", wanted) if self._founder else ""
        if seen == wanted:  # also where it had begun, and was interrupted before the first step
            return
        self._refuse_to_begin(seen or self._read())

    def _refuse_to_begin(self, seen: str) -> NoReturn:
        if _is_finished(seen):
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
                f"{self._progress!r} in the store"
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
            self._size: str(size),
            self._terms_key: json.dumps(terms),
            self._seal_key: _seal(self.word),
            self._newest: str(generation),
        }

        def write(store: dist.Store) -> None:
            # The store may answer when others have gone on, without this process or with it.
            newest = store.get(self._newest) if store.check([self._newest]) else b""
            if newest.isdigit() and int(newest) > generation:
                return
            for key, value in told.items():
                if not self._store.keeps(write):
                    return
                store.set(key, value)
            store.add(self._count, 1)
            seen = store.get(self._progress).decode()
            # All had left but for one that came as they went; or it says what is not so.
            if (seen == _LEFT or _is_finished(seen)) and self._store.keeps(write):
                store.compare_set(self._progress, seen, f"{TRAINING} {self._id}")

        self._store.keep(write)

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
        pause = min(_BEAT, self._settings.rejoin_timeout.total_seconds() / 8)
        while not stopped.is_set():
            with contextlib.suppress(RuntimeError):  # the store does not answer, or not now
                self._store.add(self._beat_key, 1)
            stopped.wait(pause)

    def finish(self) -> None:
        def write(store: dist.Store) -> None:
            store.set(self._seal_key, _seal(self.word))
            store.set(self._progress, f"{FINISHED} {self.word}")

        self._end_with(write)

    def all_leave(self) -> None:
        def write(store: dist.Store) -> None:
            if progress_of(store, self._settings.job) != FINISHED:
                store.set(self._progress, _LEFT)

        self._end_with(write)

    def _end_with(self, write: Callable[[dist.Store], None]) -> None:
        """In place of what go_on() has to write yet."""
        if not self._store.keep(write).wait(LIMIT):
            _log.event(
                "no_store", "the store does not answer: nobody reads there how the job ended"
            )

    @property
    def _job(self) -> str:
        return ElasticJob(self._settings.job)

    def _beats(self) -> int:
        return self._store.add(self._beat_key, 0)

    def _found(self) -> None:
        self._tell(self._size, "1")
        self._tell(self._terms_key, json.dumps(self._terms))
        self._tell(self._newest, "-1")
        dist.init_process_group(
            "ringdist",
            # Whoever takes over from a founder that has died finds nothing of its.
            store=dist.PrefixStore(
                f"{self._group}/{self._id}", self._store.open(self._settings.timeout)
            ),
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
        limit = self._settings.rejoin_timeout.total_seconds()
        beats, since = -1, 0.0
        while most and self._store.check([self._size]):
            seen, now = self._read(), self._beats()
            ended = seen == _LEFT or _is_finished(seen)
            if ended or int(self._store.get(self._size)) < most:
                return
            if now != beats:
                beats, since = now, time.monotonic()
            silent = time.monotonic() - since
            if self._founder_in(seen):
                if silent > _SLICE.total_seconds():  # enter() takes the place of its founder
                    return
            elif silent > limit or self._was_silent(beats):
                self._tell(self._silent, str(beats))
                raise dist.DistBackendError(
                    f"ringdist: elastic: this process waits for room, as {most} ranks are there "
                    "(--max-ranks), but they have given no sign of life for "
                    f"{limit:g} s (rejoin_timeout). If they are lost, so is what they had "
                    "trained: end the job, and start it again, from a checkpoint"
                )
            if not told:
                _log.event("full", f"{most} ranks are there, which is the most: this one waits")
            told = True
            time.sleep(_FULL_POLL)

    def _was_silent(self, beats: int) -> bool:
        """Another process has waited in vain, and there was no sign of life since."""
        return self._store.check([self._silent]) and int(self._store.get(self._silent)) == beats

    def _refuse_strangers(self) -> None:
        if self._store.check([self._terms_key]):
            theirs = json.loads(self._store.get(self._terms_key))
            if text := _standing.difference(self._terms, "this process", theirs, "the group"):
                raise ArgumentError(f"ringdist: elastic: {text}")

    @staticmethod
    def _founder_in(progress: str) -> str:
        """While its group has not trained; else empty."""
        state, _, founder = progress.partition(" ")
        return founder if state == _FORMING else ""

    def _exchange(self, expected: str, wanted: str) -> str:
        """Compare-and-set; what is there afterwards."""
        return self._store.compare_set(self._progress, expected, wanted).decode()

    def _read(self) -> str:
        return self._store.get(self._progress).decode()

    def _tell(self, key: str, value: str) -> None:
        # The store may be lost by now; the group goes on without it, and nobody can come that way.
        with contextlib.suppress(RuntimeError):
            self._store.set(key, value)


def _key(job: str, name: str) -> str:
    return f"ringdist/elastic/{job}/{name}"
