"""Keys of a job in the store: its progress and its workers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_ringdist._C import BoundedStore

FORMING, TRAINING, FINISHED, LEFT = "forming", "training", "finished", "left"


# Returns the full key of a job's value.
def key(job: str, name: str) -> str:
    return f"ringdist/elastic/{job}/{name}"


def progress_of(store: BoundedStore, job: str) -> str:
    """Returns the progress of the job; empty before any process has come.

    `finished` without the right seal counts as TRAINING. This guards against accidents only,
    because a process that can write one key can write both.
    """
    state, _, word = (store.find(key(job, "progress")) or "").partition(" ")
    if state == FINISHED and store.find(key(job, "seal")) != seal(word):
        return TRAINING
    return state


def is_finished(progress: str) -> bool:
    """Returns True if the text has the state `finished`; progress_of() also verifies it."""
    return progress.partition(" ")[0] == FINISHED


# Returns the hash that confirms a WORD.
def seal(word: str) -> str:
    return hashlib.blake2b(word.encode(), digest_size=16).hexdigest()


def generations_of(store: BoundedStore, job: str) -> int:
    """Returns the number of generations that have trained."""
    return int(store.find(key(job, "generations")) or 0)


def beats_of(store: BoundedStore, job: str) -> int:
    """Returns the number of heartbeats of the job's group. The group lives while it grows."""
    return int(store.find(key(job, "beat")) or 0)


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
        known = range(1, int(self._store.find(key(self._job, "launchers")) or 0) + 1)
        return sum(int(self._store.find(self._key(one)) or 0) for one in known)

    def _key(self, launcher: int) -> str:
        return key(self._job, f"workers/{launcher}")
