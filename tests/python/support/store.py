"""Writing to a store that others read, waiting for what they write, and a store for tests of stores
that fail or are slow."""

from __future__ import annotations

import time

import torch.distributed as dist


def write(store: dist.Store, key: str, value: str | bytes) -> None:
    """Sets the value and waits until others can read it, which TCPStore.set() does not."""
    store.set(key, value)
    store.check([key])


def wait_for(store: dist.Store, *keys: str, seconds: float = 40.0) -> None:
    """Waits until the keys exist. Unlike store.wait(), it does not block this process' client of
    the store, which the backend uses too."""
    deadline = time.monotonic() + seconds
    while not store.check(list(keys)):
        assert time.monotonic() < deadline, f"not written within {seconds:g} s: {keys}"
        time.sleep(0.02)


class ForwardingStore(dist.Store):
    """Forwards the requests of the least API to another store. Tests override some."""

    def __init__(self, store: dist.Store) -> None:
        super().__init__()
        self._store = store

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount)

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def check(self, keys: list[str]) -> bool:
        return self._store.check(keys)

    def has_extended_api(self) -> bool:
        return False
