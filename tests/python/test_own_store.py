"""The store of ringdist:// addresses: c10d's interface, groups that find each other in it, joins,
and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.job_key import key_files, key_variables, needs_tls, write_key
from support.pool import Pool, free_port
from support.rank import Ranks, caught

import torch_ringdist
import torch_ringdist.horovod as hvd
from torch_ringdist import ArgumentError, _native, _served_store

LIMIT = timedelta(seconds=30)
Store = Callable[..., dist.Store]


@pytest.fixture(params=[False, pytest.param(True, marks=needs_tls)], ids=["plain", "sealed"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dist.Store:
    if request.param:
        monkeypatch.setenv("RINGDIST_KEY_FILE", str(write_key(tmp_path / "job.key")))
    return _served_store.open_own("127.0.0.1", 0, serves=True, timeout=LIMIT)


def test_it_has_the_interface_of_c10d(store: dist.Store):
    store.set("text", "one")
    store.append("text", " two")
    assert store.get("text") == b"one two" and store.num_keys() == 1
    assert store.add("count", 3) == 3 and store.get("count") == b"3"
    assert store.compare_set("vote", "", "a") == b"a"
    assert store.compare_set("vote", "x", "b") == b"a"
    assert store.check(["text", "count"]) and not store.check(["text", "absent"])
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.multi_get(["b", "a"]) == [b"2", b"1"] and store.has_extended_api()
    assert store.delete_key("a") and not store.delete_key("a")
    with pytest.raises(dist.DistStoreError, match="'a', 'absent' after 50 ms"):
        store.wait(["a", "absent"], timedelta(milliseconds=50))
    store.set_timeout(timedelta(milliseconds=50))
    with pytest.raises(dist.DistStoreError, match="'absent' after 50 ms"):
        store.get("absent")
    with pytest.raises(ArgumentError, match="no number"):
        store.add("text", 1)
    clone = store.clone()
    store.set_timeout(LIMIT)
    prefixed = dist.PrefixStore("p", clone)
    prefixed.set("text", "other")
    assert store.get("p/text") == b"other" and store.get("text") == b"one two"


def test_a_wait_delays_no_other_call(store: dist.Store):
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(store.get("late")))
    waiting.start()
    time.sleep(0.2)
    assert not store.check(["late"])
    store.set("late", "here")
    waiting.join(20)
    assert got == [b"here"]


def _start(port: int, backend: str = "ringdist", method: str = "ringdist://127.0.0.1") -> float:
    """`method` is "env" for env://, which also has a group of Horovod before it."""
    if method == "env":
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {"RANK": str(Ranks.rank), "WORLD_SIZE": str(Ranks.launch.size)}
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == Ranks.launch.size
    dist.init_process_group(
        backend,
        init_method="env://" if method == "env" else f"{method}:{port}",
        rank=Ranks.rank,
        world_size=Ranks.launch.size,
        timeout=LIMIT,
    )
    try:
        store: Any = dist.distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        assert type(store).__name__ == "RingdistStore", store
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        second = dist.new_group(backend=backend)
        dist.barrier(second)
        objects: list[str] = [""] * Ranks.launch.size
        dist.all_gather_object(objects, str(Ranks.rank))
        assert objects == [str(rank) for rank in range(Ranks.launch.size)]
        return float(tensor.sum())
    finally:
        dist.destroy_process_group()
        hvd.shutdown()


Start = Callable[..., Pool]


@pytest.mark.parametrize("backend", ["ringdist", "gloo"])
@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=needs_tls)])
def test_groups_find_each_other(fresh_pool: Start, tmp_path: Path, backend: str, has_key: bool):
    key = key_variables(tmp_path, has_key)
    pool = fresh_pool(3, init=False, environment=key)
    for _ in range(2):
        assert pool.run(_start, free_port(), backend) == [3000.0] * 3
    if has_key and backend == "ringdist":  # then other addresses get such a store, too
        for method in ("tcp://127.0.0.1", "env", "env"):
            assert pool.run(_start, free_port(), backend, method) == [3000.0] * 3


def _join(port: int) -> list[float]:
    """Ranks 0 and 1 form a group. Rank 2 joins it."""
    address = f"ringdist://127.0.0.1:{port}"
    if Ranks.rank < 2:
        dist.init_process_group(
            "ringdist", init_method=address, rank=Ranks.rank, world_size=2, timeout=LIMIT
        )
        dist.all_reduce(torch.ones(1))
        assert torch_ringdist.admit() == address
        group = dist.group.WORLD
        while dist.get_world_size() < 3:
            try:
                dist.all_reduce(torch.ones(1))
                time.sleep(0.01)
            except dist.DistNetworkError:
                group, _ = torch_ringdist.shrink()
        assert group is not None
    else:
        time.sleep(1)
        torch_ringdist.join(address, timeout=LIMIT)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.barrier()
    dist.destroy_process_group()
    return tensor.tolist()


def test_a_newcomer_joins_by_its_address(fresh_pool: Start):
    assert fresh_pool(3, init=False).run(_join, free_port()) == [[3.0]] * 3


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("ringdist://127.0.0.1", "ringdist://HOST:PORT"),
        ("ringdist://:29500", "ringdist://HOST:PORT"),
        ("ringdist://127.0.0.1:x", "ringdist://HOST:PORT"),
        ("ringdist://127.0.0.1:29500/path", "ringdist://HOST:PORT"),
        ("ringdist://127.0.0.1:29500", "rank must be given"),
        ("ringdist://127.0.0.1:29500?rank=0", "world_size must be given"),
        ("ringdist://127.0.0.1:29500?rank=-1&world_size=2", "rank must be given"),
        ("ringdist://127.0.0.1:29500?rank=2&world_size=2", r"rank must be in 0\.\.1, got 2"),
    ],
)
def test_bad_addresses(monkeypatch: pytest.MonkeyPatch, url: str, named: str):
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ArgumentError, match=named):
        next(_served_store.rendezvous(url))


def test_rank_and_size_come_from_torchrun(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = _served_store.rendezvous(f"ringdist://127.0.0.1:{free_port()}", LIMIT)
    _, rank, size = next(found)
    assert (rank, size) == (0, 2)
    with pytest.raises(RuntimeError, match="once"):
        next(found)


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(dist.DistNetworkError, match=f"{port} .*in use.* choose a free port"):
            _served_store.open_own("127.0.0.1", port, serves=True, timeout=LIMIT)


def test_a_store_that_does_not_come_is_named():
    with pytest.raises(dist.DistNetworkError, match=r"the store at 127\.0\.0\.1:9 has failed"):
        _served_store.open_own("127.0.0.1", 9, serves=False, timeout=timedelta(seconds=1))


@needs_tls
def test_the_store_of_another_job_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RINGDIST_KEY_FILE", str(write_key(tmp_path / "job.key")))
    first = _served_store.open_own("127.0.0.1", 0, serves=True, timeout=LIMIT)
    assert _served_store.open_with_key("127.0.0.1", first.port, 0, LIMIT).port == first.port
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(dist.DistNetworkError, match=f"{port} .*in use.* choose a free port"):
            _served_store.open_with_key("127.0.0.1", port, 0, LIMIT)


@needs_tls
def test_both_sides_need_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    keys = [str(write_key(tmp_path / f"{number}.key")) for number in range(2)] + [""]
    native = _native.load()
    for served in keys[::2]:
        monkeypatch.setenv("RINGDIST_KEY_FILE", served)
        store = _served_store.open_own("127.0.0.1", 0, serves=True, timeout=LIMIT)
        for other in keys:
            if other != served:
                with pytest.raises(
                    (dist.DistNetworkError, dist.DistBackendError), match="KEY_FILE"
                ):
                    native.RingdistStore("127.0.0.1", store.port, -1, LIMIT / 4, key_files(other))
                if other:  # one without a key may be early, so it tries for long
                    bounded = native.BoundedStore(
                        "127.0.0.1", store.port, LIMIT, key_files(other), True
                    )
                    with pytest.raises(dist.DistBackendError, match="KEY_FILE"):
                        bounded.connect(LIMIT)


def test_the_last_of_its_clones_ends_it():
    store = _served_store.open_own("127.0.0.1", 0, serves=True, timeout=LIMIT)
    port, clone = store.port, store.clone()
    del store
    clone.set("key", "value")
    del clone
    again = _served_store.open_own("127.0.0.1", port, serves=True, timeout=LIMIT)
    assert not again.check(["key"])


def test_the_last_answer_is_named_although_a_later_one_was_late():
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            for _ in range(2):
                other.accept()[0].close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(dist.DistNetworkError, match=r"closed the .*RINGDIST_KEY_FILE"):
            _served_store.open_own("127.0.0.1", other.getsockname()[1], False, timedelta(seconds=2))
        thread.join()


def test_it_is_waited_for_behind_a_proxy():
    """A proxy accepts connections before the store is there, and closes them."""
    opened: list[dist.Store] = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        port = proxy.getsockname()[1]
        opening = threading.Thread(
            target=lambda: opened.append(_served_store.open_own("127.0.0.1", port, False, LIMIT))
        )
        opening.start()
        deadline = time.monotonic() + 4
        proxy.settimeout(0.1)
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                proxy.accept()[0].close()
    served = _served_store.open_own("127.0.0.1", port, serves=True, timeout=LIMIT)
    opening.join(30)
    assert opened and served.num_keys() == opened[0].num_keys()


def test_bounded_requests(store: dist.Store):
    key = os.environ.get("RINGDIST_KEY_FILE", "")
    own = _native.load().BoundedStore(
        "127.0.0.1", store.port, LIMIT, key_files(key), is_hosted=True
    )
    assert own.find("count") is None and own.count("count") == 0
    assert own.add("count", 3) == own.count("count") == 3 and own.find("count") == "3"
    assert own.compare_set("vote", "", "a") == "a" and own.compare_set("vote", "x", "b") == "a"
    own.set("vote", "c")
    assert own.compare_set("vote", "c", "d") == own.find("vote") == "d"
    assert store.get("vote") == b"d"
    with pytest.raises(dist.DistNetworkError, match=r"has failed \(.*no number"):
        own.add("vote", 1)
    assert own.find("vote") == "d"


def test_signals_do_not_prolong_a_wait(store: dist.Store):
    """The handler runs all the time, and the wait ends all the same."""
    count = 0

    def handle(*_: object) -> None:
        nonlocal count
        count += 1

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(dist.DistStoreError, match="'absent' after 1000 ms"):
            store.wait(["absent"], timedelta(seconds=1))
        assert count > 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ctrl_c_ends_a_wait(store: dist.Store):
    # A shell starts background commands with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            store.wait(["absent"], timedelta(seconds=60))
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_stores_can_be_joined_as_before():
    for bad in ("ringdist://", "ringdist://x", "x"):
        raised = caught(torch_ringdist.join, bad)
        assert raised is not None and '"ringdist://host:port"' in str(raised)
