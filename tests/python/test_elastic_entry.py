"""How a process comes into an elastic group, with a made-up join()."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

import torch_ringdist
from torch_ringdist.elastic import _entry
from torch_ringdist.elastic._settings import Settings

REJOIN = timedelta(seconds=1)


def settings(store: dist.TCPStore) -> Settings:
    return Settings(
        host="127.0.0.1",
        port=store.port,
        min_ranks=1,
        start_ranks=1,
        max_ranks=2,
        rejoin_timeout=REJOIN,
        timeout=REJOIN,
        checkpoint=None,
        options=None,
        job="mine",
    )


def test_who_waits_for_room_has_all_its_time_left_then(monkeypatch: pytest.MonkeyPatch):
    """What others die of at that moment may cost it the first try."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set(_entry._key("mine", "progress"), "training another")
    store.set(_entry._key("mine", "size"), "2")
    monkeypatch.setattr(_entry, "_SLICE", timedelta(seconds=0.1))
    tries: list[float] = []

    def join(*_: Any, **__: Any) -> tuple[None, SimpleNamespace]:
        tries.append(time.monotonic())
        if len(tries) == 1:
            time.sleep(0.1)
            raise dist.DistBackendError("not let in within 0.1 s")
        return None, SimpleNamespace(generation=7)

    monkeypatch.setattr(torch_ringdist, "join", join)
    leave = threading.Timer(
        2 * REJOIN.total_seconds(), store.set, (_entry._key("mine", "size"), "1")
    )
    leave.start()
    began = time.monotonic()
    assert _entry.Entry(settings(store)).enter({}) == 7
    leave.join()
    assert len(tries) == 2 and tries[0] - began > REJOIN.total_seconds(), "it did not wait"


def test_only_the_last_members_say_that_training_has_finished():
    """Anybody can write to the store; a process that comes then takes nobody else's word."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    progress, seal = (_entry._key("mine", name) for name in ("progress", "seal"))
    entry = _entry.Entry(settings(store))
    for written in ("finished", "finished word"):
        store.set(progress, written)
        assert _entry.progress_of(store, "mine") == _entry.TRAINING
        with pytest.raises(dist.DistBackendError, match="not from the members of its last gener"):
            entry.enter({})
        store.set(seal, _entry._seal("another"))
    store.set(seal, _entry._seal("word"))
    assert _entry.progress_of(store, "mine") == _entry.FINISHED
    with pytest.raises(SystemExit) as ended:
        entry.enter({})
    assert ended.value.code == 0
