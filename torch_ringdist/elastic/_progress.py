"""What the store has of a job: how far it is, and who works at it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_ringdist._C import BoundedStore

FORMING, TRAINING, FINISHED, LEFT = "forming", "training", "finished", "left"


def key(job: str, name: str) -> str:
    return f"ringdist/elastic/{job}/{name}"


def progress_of(store: BoundedStore, job: str) -> str:
    """How far the job is; empty before anybody has come. TRAINING also where it says `finished`
    and the seal is another: a guard against accidents, as who writes the one key can write both."""
    state, _, word = (store.find(key(job, "progress")) or "").partition(" ")
    if state == FINISHED and store.find(key(job, "seal")) != seal(word):
        return TRAINING
    return state


def is_finished(progress: str) -> bool:
    """Whether it says so; progress_of() checks that it is true."""
    return progress.partition(" ")[0] == FINISHED


def seal(word: str) -> str:
    return hashlib.blake2b(word.encode(), digest_size=16).hexdigest()


def generations_of(store: BoundedStore, job: str) -> int:
    """How many have trained."""
    return int(store.find(key(job, "generations")) or 0)


def beats_of(store: BoundedStore, job: str) -> int:
    """Signs of life that the job's group has given. It lives while they become more."""
    return int(store.find(key(job, "beat")) or 0)


class Workers:
    """How many processes launchers have running. Each launcher writes its own number, so that a
    request may be repeated where the store's answer was lost."""

    def __init__(self, store: BoundedStore, job: str) -> None:
        self._store, self._job = store, job
        self._launcher = 0  # from 1

    # Both raise torch.distributed.DistNetworkError: the store does not answer.

    def tell(self, here: int) -> None:
        """This launcher has so many."""
        self._launcher = self._launcher or self._store.add(key(self._job, "launchers"), 1)
        self._store.set(self._key(self._launcher), str(here))

    def count(self) -> int:
        """Of all launchers."""
        known = range(1, int(self._store.find(key(self._job, "launchers")) or 0) + 1)
        return sum(int(self._store.find(self._key(one)) or 0) for one in known)

    def _key(self, launcher: int) -> str:
        return key(self._job, f"workers/{launcher}")
