"""`torchrun --rdzv-backend=ringdist`: launchers and ranks meet in a store of ringdist's own."""

from __future__ import annotations

import errno
import json
import os
import pickle
import socket
import subprocess
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from support.job_key import key_variables, needs_tls, write_key
from support.launched import preloaded, python_path
from support.pool import free_port
from torch.distributed.elastic.rendezvous import api
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

import torch_ringdist.horovod as hvd
from torch_ringdist import ArgumentError, _rendezvous, _served_store, _torchrun

NODES = [_NodeDesc("host", 12, 0), _NodeDesc("other", 13, 1), _NodeDesc("third", 14, 2)]


def _state() -> _RendezvousState:
    state = _RendezvousState()
    state.round, state.complete = 3, True
    state.deadline = datetime(2026, 11, 30, 12, 30, 1, 250, tzinfo=timezone.utc)
    state.participants = {NODES[0]: 1, NODES[1]: 0}
    state.wait_list, state.redundancy_list = {NODES[2]}, set(NODES[1:])
    state.last_heartbeats = {NODES[0]: state.deadline + timedelta(seconds=1)}
    return state


def test_the_state_is_the_same_after_json():
    for state in (_state(), _RendezvousState()):
        assert vars(_torchrun.decode(_torchrun.encode(state).encode())) == vars(state)


def test_a_torch_with_other_fields_is_refused():
    state = _state()
    state.new = 1  # type: ignore[attr-defined]
    with pytest.raises(api.RendezvousStateError, match=r"\(new\): use c10d"):
        _torchrun.encode(state)


class _Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (str(self.path), "w")


def _with(**changed: Any) -> bytes:
    return json.dumps({**json.loads(_torchrun.encode(_state())), **changed}).encode()


OTHERS = [
    b"",
    b"{}",
    b"[" * 100000,
    _with(round="3"),
    _with(round=True),
    _with(deadline=3),
    _with(deadline="soon"),
    _with(deadline=0),
    _with(deadline="2026-11-30T12:30:01"),
    _with(participants=[[["host", 12], 0]]),
    _with(participants=[[["host", "12", 0], 0]]),
    _with(participants={"host": 0}),
    _with(wait_list=3),
    _with(more=3),
]


@pytest.mark.parametrize("value", ["a pickle", *OTHERS], ids=lambda value: str(value)[:40])
def test_something_else_in_the_store_is_refused(value: Any, tmp_path: Path):
    canary = tmp_path / "canary"
    store = dist.HashStore()
    backend = _torchrun.JsonBackend(store, "job")
    assert backend.get_state() is None
    if value == "a pickle":
        value = pickle.dumps(_Canary(canary))
    store.set("ringdist/torchrun/job", value)
    with pytest.raises(api.RendezvousStateError, match="something else writes to the store"):
        backend.get_state()
    with pytest.raises(api.RendezvousStateError, match="something else writes to the store"):
        backend.set_state(pickle.dumps(_state()))
    assert not canary.exists()


def test_of_two_that_write_at_once_one_is_told():
    backends = [_torchrun.JsonBackend(dist.HashStore(), "job")] * 2
    first = backends[0].set_state(pickle.dumps(_state()))
    assert first is not None and first[2]
    changed = _state()
    changed.round = 4
    second = backends[1].set_state(pickle.dumps(changed))
    assert second is not None and not second[2]
    assert vars(pickle.loads(second[0])) == vars(_state())
    third = backends[1].set_state(pickle.dumps(changed), second[1])
    assert third is not None and third[2] and backends[0].get_state() == third[:2]


SCRIPT = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("ringdist")
store = dist.distributed_c10d._get_default_store()
while isinstance(store, dist.PrefixStore):
    store = store.underlying_store
x = torch.ones(3)
dist.all_reduce(x)
print("sum", x[0].item(), type(store).__name__, flush=True)
dist.barrier()
if dist.get_rank() == 1 and not os.path.exists("failed"):
    open("failed", "w").close()
    sys.exit(1)
dist.barrier()
dist.destroy_process_group()
"""


def _launch(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs torchrun with forked ranks."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path(), **variables}
    command = [preloaded.__file__, "torchrun", "--rdzv-backend=ringdist", "--rdzv-id=job"]
    command += ["--nnodes=2", "--nproc-per-node=1", "--max-restarts=1", *options]
    return preloaded.run(command, env=environment, cwd=folder, timeout=100)


def _report(done: subprocess.CompletedProcess[str]) -> str:
    return f"status {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=needs_tls)])
def test_launchers_and_ranks_meet_again_after_a_failure(tmp_path: Path, has_key: bool):
    key = key_variables(tmp_path, has_key)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done: list[subprocess.CompletedProcess[str]] = []
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    launchers = [
        threading.Thread(
            target=lambda: done.append(_launch(tmp_path, endpoint, str(script), **key))
        )
        for _ in range(2)
    ]
    for one in launchers:
        one.start()
    for one in launchers:
        one.join()
    assert [one.returncode for one in done] == [0, 0], "\n\n".join(map(_report, done))
    for one in done:
        assert one.stdout.count("sum 2.0 RingdistStore\n") == 2, one


HOROVOD = """
import torch, torch_ringdist.horovod as hvd
from torch_ringdist.horovod import _global_state
for _ in range(2):
    hvd.init()
    print("sum", hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), flush=True)
    [store] = _global_state._stores.values()
    print(type(store.underlying_store).__name__, flush=True)
    hvd.shutdown()
"""


def test_horovod_uses_the_store(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(HOROVOD)
    options = ("--rdzv-endpoint=localhost:0", "--nnodes=1", "--nproc-per-node=2")
    done = _launch(tmp_path, *options, str(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 2.0\n") == done.stdout.count("RingdistStore\n") == 4, done


@needs_tls
def test_a_launcher_without_the_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RINGDIST_KEY_FILE", str(write_key(tmp_path / "job.key")))
    store = _served_store.open_own("127.0.0.1", 0, serves=True, timeout=timedelta(seconds=30))
    endpoint = f"--rdzv-endpoint=127.0.0.1:{store.port}"
    options = (endpoint, "--rdzv-conf=read_timeout=3", "script.py")
    done = _launch(tmp_path, *options, RINGDIST_KEY_FILE="")
    assert done.returncode == 1
    assert f"{endpoint}: " in done.stderr, done.stderr
    assert "RINGDIST_KEY_FILE" in done.stderr, done.stderr


def _parameters(endpoint: str, **configuration: Any) -> api.RendezvousParameters:
    return api.RendezvousParameters("ringdist", endpoint, "job", 1, 1, **configuration)


def test_a_launch_that_is_over_leaves_no_store():
    port = free_port()
    for _ in range(2):
        handler = _torchrun.create_handler(_parameters(f"localhost:{port}"))
        assert handler.next_rendezvous().world_size == 1
        assert f"ringdist://localhost:{port}?" in os.environ.pop(_rendezvous.STORE_OF_RANKS)
        handler.shutdown()
        del handler
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("timeout", [0, -1, "x"])
def test_bad_timeouts(timeout: Any):
    with pytest.raises(ValueError, match="read_timeout"):
        _torchrun.create_handler(_parameters("localhost:0", read_timeout=timeout))


def test_a_port_that_may_not_be_opened_is_named(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(api.RendezvousConnectionError, match=r"=localhost:80: .*Permission denied"):
        _torchrun.create_handler(_parameters("localhost:80"))


def test_a_job_that_a_rank_starts_has_its_own_store(monkeypatch: pytest.MonkeyPatch):
    address = "ringdist://127.0.0.1:1?prefix=a&master=host%3A7"
    monkeypatch.setenv(_rendezvous.STORE_OF_RANKS, address)
    monkeypatch.setenv("MASTER_ADDR", "host")
    monkeypatch.setenv("MASTER_PORT", "7")
    assert _rendezvous.store_of_ranks() == address
    monkeypatch.setenv("MASTER_PORT", "8")
    assert _rendezvous.store_of_ranks() == ""


@pytest.mark.parametrize(
    ("address", "cure"),
    [
        ("", "torchrun with --rdzv-backend=ringdist"),
        ("ringdist://a:1?prefix=a&master=host%3A7", "as the launcher has set them, host:7"),
    ],
)
def test_with_a_key_a_plain_store_of_torchrun_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str, cure: str
):
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "host", "MASTER_PORT": "8"}
    variables |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "RINGDIST_KEY_FILE": "job.key"}
    for name, value in {**variables, _rendezvous.STORE_OF_RANKS: address}.items():
        monkeypatch.setenv(name, value)
    for start in (lambda: dist.init_process_group("ringdist"), hvd.init):
        with pytest.raises(ArgumentError, match=f"TCPStore at host:8, .*: .*{cure}"):
            start()
