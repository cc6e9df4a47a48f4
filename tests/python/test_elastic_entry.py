"""Entry of a process into an elastic group, with a fake join()."""

from __future__ import annotations

import argparse
import dataclasses
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from support.store import write

import torch_ringdist
from torch_ringdist._launch import arguments, launcher, rendezvous_store
from torch_ringdist._launch.rendezvous_store import RendezvousStore
from torch_ringdist.elastic import _group, _join_coordinator, _progress, _store
from torch_ringdist.elastic._settings import EVENTS, START_RANKS, Settings

REJOIN = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def stores_open_in_their_own_time(monkeypatch: pytest.MonkeyPatch):
    """On a busy machine a connection may take longer than REJOIN."""
    monkeypatch.setattr(
        _join_coordinator, "open_store", lambda host, port, *_: _store.open_store(host, port)
    )


def settings(store: Any, rejoin: timedelta = REJOIN) -> Settings:
    return Settings(
        host="127.0.0.1",
        port=store.port,
        is_own=False,
        min_ranks=1,
        start_ranks=1,
        max_ranks=2,
        rejoin_timeout=rejoin,
        timeout=REJOIN,
        checkpoint=None,
        options=None,
        job="mine",
    )


def full_store(progress: str) -> dist.TCPStore:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    write(store, _progress.key("mine", "progress"), progress)
    write(store, _progress.key("mine", "size"), "2")
    return store


def test_who_waits_for_room_has_all_its_time_left_then(monkeypatch: pytest.MonkeyPatch):
    """The first attempt may fail because of deaths of others at that moment."""
    store = full_store("training another")
    rejoin = timedelta(seconds=3)  # also the longest silence of the heartbeats
    monkeypatch.setattr(_join_coordinator, "_SLICE", timedelta(seconds=0.1))
    rank_0 = _join_coordinator.JoinCoordinator(settings(store, rejoin))
    rank_0.begin_beats()
    tries: list[float] = []

    def join(*_: Any, **__: Any) -> tuple[None, SimpleNamespace]:
        tries.append(time.monotonic())
        if len(tries) == 1:
            time.sleep(0.1)
            raise dist.DistBackendError("not let in within 0.1 s")
        return None, SimpleNamespace(generation=7)

    monkeypatch.setattr(torch_ringdist, "join", join)
    leave = threading.Timer(4, store.set, (_progress.key("mine", "size"), "1"))
    began = time.monotonic()
    leave.start()
    assert _join_coordinator.JoinCoordinator(settings(store, rejoin)).enter({}) == 7
    rank_0.end_beats()
    leave.join()
    assert len(tries) == 2 and tries[0] - began > rejoin.total_seconds(), "it did not wait"


def test_only_the_last_members_say_that_training_has_finished():
    """Any process can write to the store, so a newcomer accepts the end only from the last
    members."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    progress, seal = (_progress.key("mine", name) for name in ("progress", "seal"))
    entry, own = (
        _join_coordinator.JoinCoordinator(settings(store)),
        _store.open_store("127.0.0.1", store.port),
    )
    for written in ("finished", "finished word"):
        write(store, progress, written)
        assert _progress.progress_of(own, "mine") == _progress.TRAINING
        with pytest.raises(dist.DistBackendError, match="not from the members of its last gener"):
            entry.enter({})
        write(store, seal, _progress.seal("another"))
    write(store, seal, _progress.seal("word"))
    assert _progress.progress_of(own, "mine") == _progress.FINISHED
    with pytest.raises(SystemExit) as ended:
        entry.enter({})
    assert ended.value.code == 0


def test_who_waits_for_room_gives_up_a_group_without_a_sign_of_life():
    store = full_store("training another")
    with pytest.raises(dist.DistBackendError, match="no sign of life for 1 s"):
        _join_coordinator.JoinCoordinator(settings(store)).enter({})
    later = dataclasses.replace(settings(store), rejoin_timeout=timedelta(hours=1))
    with pytest.raises(dist.DistBackendError, match="no sign of life"):  # at once
        _join_coordinator.JoinCoordinator(later).enter({})
    assert (
        store.get(_progress.key("mine", "progress")) == b"training another"
    )  # does not create a second group


def test_a_full_group_whose_founder_is_lost_before_training_is_taken_over(
    monkeypatch: pytest.MonkeyPatch,
):
    store = full_store("forming another")
    monkeypatch.setattr(_join_coordinator, "_SLICE", timedelta(seconds=0.1))
    monkeypatch.setattr(_join_coordinator.JoinCoordinator, "_found", lambda _: None)

    def join(*_: Any, **__: Any) -> None:
        time.sleep(0.1)
        raise dist.DistBackendError("not let in within 0.1 s")

    monkeypatch.setattr(torch_ringdist, "join", join)
    later = dataclasses.replace(settings(store), rejoin_timeout=timedelta(hours=1))
    assert _join_coordinator.JoinCoordinator(later).enter({}) == 0


def test_a_launcher_holds_its_store_while_a_group_lives(monkeypatch: pytest.MonkeyPatch):
    held = RendezvousStore(None, "mine")
    write(held._held, _progress.key("mine", "progress"), "training another")
    assert held.is_needed
    monkeypatch.setattr(rendezvous_store, "_SILENCE", 0.1)
    time.sleep(0.2)
    assert not held.is_needed
    held._held.add(_progress.key("mine", "beat"), 1)
    assert held.is_needed


def test_a_launcher_holds_its_store_although_a_request_fails(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise dist.DistNetworkError("connection reset by peer")

    held = RendezvousStore(None, "mine")
    monkeypatch.setattr(rendezvous_store, "progress_of", fail)
    assert held.is_needed
    monkeypatch.setattr(rendezvous_store, "_SILENCE", 0.0)
    assert not held.is_needed


@pytest.mark.parametrize("rendezvous", [True, False])
@pytest.mark.parametrize(
    ("options", "start"),
    [
        ([], 4),
        (["--min-ranks=2"], 4),
        (["--min-ranks=6"], 6),
        (["--max-ranks=3"], 3),
        (["--start-ranks=1"], 1),
    ],
)
def test_how_many_ranks_training_begins_with(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rendezvous: bool,
    options: list[str],
    start: int,
):
    monkeypatch.setenv(EVENTS, "")  # set by a Launcher
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    options = [*options, f"--rdzv=127.0.0.1:{store.port}"] if rendezvous else options
    parser = argparse.ArgumentParser()
    arguments.add(parser)
    line = ["--nproc-per-node=4", f"--log-dir={tmp_path}", *options, "train.py"]
    args = parser.parse_args(line)
    arguments.complete(args)
    environment = launcher.Launcher(args)._environment()
    assert environment[START_RANKS] == str(start)


def test_who_is_to_end_and_does_not_is_given_up(monkeypatch: pytest.MonkeyPatch):
    given_up: list[int] = []

    class Barrier:
        """A barrier without the ranks that are to end."""

        def is_completed(self) -> bool:
            return False

        def wait(self) -> None:
            assert given_up, "it waits for ever"
            raise dist.DistNetworkError("the group has failed")

    monkeypatch.setattr(_group, "_GOING", 0.2)
    monkeypatch.setattr(dist, "barrier", lambda async_op: Barrier())
    monkeypatch.setattr(_group, "give_up", lambda rank, why: given_up.append(rank))
    with pytest.raises(dist.DistNetworkError):
        _group.until_they_go([1, 3])
    assert given_up == [1, 3]


def test_more_ranks_to_begin_with_than_the_most():
    parser = argparse.ArgumentParser()
    arguments.add(parser)
    args = parser.parse_args(["--max-ranks=2", "--start-ranks=3", "train.py"])
    with pytest.raises(ValueError, match="--max-ranks=2 is less than --start-ranks=3"):
        launcher.run(args)


def test_numbers_of_the_store():
    texts = ["0", "12", "9" * 10, "9" * 11, "", "x", "-1", "\u00b2", "1 ", "+1", "1_0"]
    assert [_progress.number_in(one) for one in texts] == [0, 12, 9_999_999_999, *[0] * 8]
