"""The code of the processes of a pool (pool.py), and helpers for the functions that run there.

Such a function is a plain function of a test module and has no argument for the group.
torch.distributed holds the default group (ringdist). `oracle()` returns a gloo group of the same
ranks.
"""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

import torch_ringdist
from torch_ringdist import _native

# Longer than any healthy call on a loaded machine, shorter than the pool's limit. So the backend,
# which has more details, reports hangs first.
GROUP_TIMEOUT = timedelta(seconds=40)
STORE_TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True)
class Launch:
    """Settings common to the processes of one pool."""

    size: int
    port: int  # port of the TCPStore
    prefix: str  # prefix of this pool's keys in it
    log: str  # a path; the rank is appended
    environment: dict[str, str] = field(default_factory=dict)
    timeout: timedelta = GROUP_TIMEOUT
    rank0_hosts_store: bool = False
    store_address: str = "127.0.0.1"
    enter: Callable[[int], None] | None = None  # called first in each rank, with its number
    init: bool = True


@dataclass(frozen=True)
class Raised:
    """An exception as it comes back from a rank."""

    kinds: list[str]  # class names, the most derived first
    text: str
    after: float  # seconds since the call
    at: float  # time.monotonic(), which all processes of a machine share
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kinds[0]} after {self.after:.2f} s: {self.text}"


class Ranks:
    """This process as one rank of its pool."""

    rank = 0
    launch: Launch
    store: dist.Store
    gloo: dist.ProcessGroup | None = None
    stores = itertools.count()


def store_for(name: str) -> dist.Store:
    """Returns a separate store for the group `name`. All ranks use the same name."""
    return dist.PrefixStore(f"{Ranks.launch.prefix}/{name}", Ranks.store)


def new_store() -> dist.Store:
    """Returns a separate store without keys. All ranks of the pool call it."""
    return store_for(f"new {next(Ranks.stores)}")


def init(name: str = "default", **settings: Any) -> None:
    """Calls init_process_group("ringdist") over store_for(name)."""
    settings.setdefault("timeout", Ranks.launch.timeout)
    dist.init_process_group(
        "ringdist",
        store=store_for(name),
        rank=Ranks.rank,
        world_size=Ranks.launch.size,
        **settings,
    )


def oracle() -> dist.ProcessGroup:
    """Returns the gloo group of all ranks."""
    if Ranks.gloo is None:
        Ranks.gloo = dist.new_group(backend="gloo", timeout=GROUP_TIMEOUT)
    return Ranks.gloo


def new_group(seconds: float | None = None, ranks: Sequence[int] | None = None, **settings: Any):
    """Returns a new ringdist group. All ranks of the pool call it."""
    timeout = Ranks.launch.timeout if seconds is None else timedelta(seconds=seconds)
    return dist.new_group(ranks, backend="ringdist", timeout=timeout, **settings)


def a_new_group_works() -> None:
    """Checks that a new group works after another one has failed. All ranks of the pool call it."""
    group, tensor = new_group(), torch.ones(5)
    dist.all_reduce(tensor, group=group)
    same_bits(tensor, torch.full((5,), float(dist.get_world_size())), "a new group")
    dist.destroy_process_group(group)


def caught(function: Callable[..., Any], *args: Any, **named: Any) -> Raised | None:
    """Returns the exception that `function` raised, or None."""
    begin = time.monotonic()
    try:
        function(*args, **named)
    except Exception as error:
        now = time.monotonic()
        return Raised([c.__name__ for c in type(error).__mro__], str(error), now - begin, now)
    return None


def same_bits(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Fails unless both have the same shape, dtype and bytes (NaN and the sign of zero count)."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, (
        f"{what}: {actual.dtype}{list(actual.shape)}, expected "
        f"{expected.dtype}{list(expected.shape)}"
    )
    a = actual.detach().contiguous().reshape(-1).view(torch.uint8)
    b = expected.detach().contiguous().reshape(-1).view(torch.uint8)
    if torch.equal(a, b):
        return
    at = int((a != b).nonzero()[0]) // actual.element_size()
    got, wanted = actual.reshape(-1)[at].item(), expected.reshape(-1)[at].item()
    raise AssertionError(
        f"{what}: element {at} of {actual.numel()} is {got!r}, expected {wanted!r}"
    )


def poll(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Returns True if `condition` came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def dump() -> str:
    """Returns torch_ringdist.dump(), from a moment at which the lane has time to answer."""
    texts = [""]

    def answered() -> bool:
        texts[0] = torch_ringdist.dump()
        return "the lane is busy" not in texts[0].split("\n", 1)[0]

    assert poll(answered, 30), texts[0]
    return texts[0]


def in_threads(functions: Sequence[Callable[[], Any]], seconds: float = 60.0) -> list[Any]:
    """Runs all functions at once. Returns their results, or raises the first exception."""
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def call(i: int) -> None:
        try:
            results[i] = functions[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return results


def serve(rank: int, launch: Launch, commands: Connection) -> None:
    """Runs one rank: joins the group, then runs the functions that the test sends until it sends
    None."""
    # A new session, so that killing its process group includes its forked children.
    os.setsid()
    if launch.enter:
        launch.enter(rank)
    log = os.open(f"{launch.log}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
    os.environ.update(launch.environment)
    torch.set_num_threads(1)
    try:
        _join(rank, launch)
    except Exception as error:
        commands.send((False, _raised(error, time.monotonic())))
        return
    commands.send((True, None))
    if os.environ.get("SHARE_TEST_TENSORS"):  # shares every tensor that is large enough
        _native.load().begin_sharing()
    while command := commands.recv():
        begin = time.monotonic()
        torch.manual_seed(0)  # ranks draw alike, whatever an earlier test of the pool has drawn
        try:
            module, name, args = command
            reply = True, getattr(importlib.import_module(module), name)(*args)
        except Exception as error:
            reply = False, _raised(error, begin)
        commands.send(reply)
    if dist.is_initialized():
        dist.destroy_process_group()


def _join(rank: int, launch: Launch) -> None:
    hosts = launch.rank0_hosts_store and rank == 0
    Ranks.rank, Ranks.launch = rank, launch
    Ranks.store = dist.TCPStore(
        launch.store_address,
        launch.port,
        is_master=hosts,
        wait_for_workers=False,
        timeout=STORE_TIMEOUT,
    )
    if launch.init:
        init()


def _raised(error: Exception, begin: float) -> Raised:
    now = time.monotonic()
    kinds = [c.__name__ for c in type(error).__mro__]
    return Raised(kinds, str(error), now - begin, now, traceback.format_exc())
