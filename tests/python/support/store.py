"""A store for tests of stores that fail or are slow."""

from __future__ import annotations

import torch.distributed as dist


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
