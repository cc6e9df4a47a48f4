"""Keys of a job in the store: its progress and its workers."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from torch_ringdist.elastic._store import text_of

if TYPE_CHECKING:
    from torch_ringdist._C import BoundedStore

FORMING, TRAINING, FINISHED, LEFT = "forming", "training", "finished", "left"
_MOST_LAUNCHERS = 10_000  # limit of requests in Workers.count()


# Returns the full key of a job's value.
def key(job: str, name: str) -> str:
    return f"ringdist/elastic/{job}/{name}"


def progress_of(store: BoundedStore, job: str) -> str:
    """Returns the progress of the job; empty before any process has come.

    `finished` without the right seal counts as TRAINING. This guards against accidents only,
    because a process that can write one key can write both.
    """
    state, _, word = text_of(store, key(job, "progress")).partition(" ")
    if state == FINISHED and text_of(store, key(job, "seal")) != seal(word):
        return TRAINING
    return state


def is_finished(progress: str) -> bool:
    """Returns True if the text has the state `finished`; progress_of() also verifies it."""
    return progress.partition(" ")[0] == FINISHED


# Returns the hash that confirms a WORD.
def seal(word: str) -> str:
    return hashlib.blake2b(word.encode(), digest_size=16).hexdigest()


def number_in(text: str) -> int:
    """Returns the whole number that the text is; 0 for other texts, which something else has
    written."""
    return int(text) if re.fullmatch("[0-9]{1,10}", text) else 0


def generations_of(store: BoundedStore, job: str) -> int:
    """Returns the number of generations that have trained."""
    return number_in(text_of(store, key(job, "generations")))


def beats_of(store: BoundedStore, job: str) -> int:
    """Returns the number of heartbeats of the job's group. The group lives while it grows."""
    return store.count(key(job, "beat"))


class Workers:
    """Counts the running workers of all launchers.

    Each launcher writes its own number, so a request may be repeated if the store's answer was
    lost.
    """

    def __init__(self, store: BoundedStore, job: str) -> None:
        self._store, self._job = store, job
        self._launcher = 0  # number of this launcher, from 1

    # Both functions raise torch.distributed.DistNetworkError if the store does not answer.

    def tell(self, here: int) -> None:
        """Publishes the number of workers of this launcher."""
        self._launcher = self._launcher or self._store.add(key(self._job, "launchers"), 1)
        self._store.set(self._key(self._launcher), str(here))

    def count(self) -> int:
        """Returns the number of workers of all launchers."""
        launchers = self._store.count(key(self._job, "launchers"))
        there = range(1, min(launchers, _MOST_LAUNCHERS) + 1)
        return sum(number_in(text_of(self._store, self._key(one))) for one in there)

    def _key(self, launcher: int) -> str:
        return key(self._job, f"workers/{launcher}")
