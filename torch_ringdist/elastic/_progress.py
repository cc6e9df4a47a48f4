"""Keys of a job in the store: its progress and its workers."""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch.distributed as dist

from torch_ringdist.elastic._store import exchange, text_of

if TYPE_CHECKING:
    from torch_ringdist._C import BoundedStore

FORMING, TRAINING, FINISHED, LEFT = "forming", "training", "finished", "left"
_MOST_LAUNCHERS = 10_000  # limit of requests in Workers


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

    Each launcher writes its own number, at the first place that no other launcher has. A request
    may be repeated if the store's answer was lost.
    """

    def __init__(self, store: BoundedStore, job: str) -> None:
        self._store, self._job = store, job
        self._id = secrets.token_hex(8)
        self._place = 0  # the place of this launcher, from 1

    # Both functions raise torch.distributed.DistNetworkError if the store does not answer.

    def tell(self, here: int) -> None:
        """Publishes the number of workers of this launcher."""
        # A store that was restarted has lost the places, and may have given them to others.
        if not text_of(self._store, self._key(self._place)).startswith(self._id):
            self._place = next(filter(self._takes, range(1, _MOST_LAUNCHERS)), _MOST_LAUNCHERS)
        self._store.set(self._key(self._place), f"{self._id} {here}")

    def count(self) -> int:
        """Returns the number of workers of all launchers."""
        return sum(number_in(text.partition(" ")[2]) for text in self._texts())

    def _texts(self) -> Iterator[str]:
        """Yields the texts of all places up to the first free one."""
        for place in range(1, _MOST_LAUNCHERS):
            try:
                text = self._store.find(self._key(place))
            except UnicodeDecodeError:  # bytes of something else
                continue
            if text is None:
                return
            yield text

    def _takes(self, place: int) -> bool:
        """Takes the place if it is free. Returns True if it is this launcher's."""
        with contextlib.suppress(dist.DistBackendError):  # bytes of something else
            return exchange(self._store, self._key(place), "", self._id).startswith(self._id)
        return False

    def _key(self, place: int) -> str:
        return key(self._job, f"workers/{place}")
