"""Stores listen only at the address that they were given."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from support.job_key import key_variables, needs_tls, write_key
from support.launched import Launched, preloaded, python_path
from support.pool import free_port
from support.store import write

from torch_ringdist import _served_store
from torch_ringdist._launch.rendezvous_store import RendezvousStore
from torch_ringdist._rendezvous import STORE_OF_RANKS
from torch_ringdist._served_store import serve

ENVIRONMENT = {**os.environ, "PYTHONPATH": python_path()}


def listening(port: int, *pids: int) -> list[str]:
    """Returns the addresses at which these processes listen at the port, from the kernel.

    Processes of other tests may have got the same port at another address.
    """
    sockets = set()
    for link in (link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            sockets.add(os.readlink(link))
    found = []
    for table in ("tcp", "tcp6"):
        path = Path("/proc/self/net") / table
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            address, _, at = fields[1].partition(":")
            ours = f"socket:[{fields[9]}]" in sockets
            if fields[3] == "0A" and int(at, 16) == port and ours:
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                found.append(str(ipaddress.ip_address(b"".join(words))))
    return found


# Prints where the store listens that the launcher has named.
SCRIPT = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from test_served_store import listening
where = os.environ.get("RINGDIST_RDZV") or os.environ.get({STORE_OF_RANKS!r})
where = (where or ":" + os.environ["MASTER_PORT"]).partition("?")[0]
kind = "one of ringdist's" if where.startswith("ringdist://") else "a TCPStore"
pids = [os.getpid()]
if {preloaded.PIDS!r} in os.environ:  # the launcher and this process
    pids = [int(pid) for pid in open(os.environ[{preloaded.PIDS!r}])]
print(kind, "at", *listening(int(where.rpartition(":")[2]), *pids))
"""

# Creates a group of two ranks first, of which rank 0 holds the store.
HOROVOD = f"""
import torch
import torch_ringdist.horovod as hvd
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == 2
{SCRIPT}
hvd.shutdown()
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1"])
def test_a_store_listens_at_one_address(host: str):
    if ":" in host:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 here")
    store = serve(host, 0, wait_for_workers=False)
    address = host if ":" in host else "127.0.0.1"
    assert [ipaddress.ip_address(one) for one in listening(store.port, os.getpid())] == [
        ipaddress.ip_address(address)
    ]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", store.port), 5)
    client = dist.TCPStore(host, store.port, is_master=False, wait_for_workers=False)
    write(client, "key", "value")
    assert store.get("key") == b"value"


def test_a_port_in_use_is_refused_or_shared():
    store = serve("127.0.0.1", 0, multi_tenant=True, wait_for_workers=False)
    again = serve("127.0.0.1", store.port, multi_tenant=True, wait_for_workers=False)
    write(again, "key", "value")
    assert store.get("key") == b"value"
    with pytest.raises(dist.DistError, match="in use"):
        serve("127.0.0.1", store.port, wait_for_workers=False)


@pytest.mark.parametrize(
    ("host", "address", "said"),
    [
        ("a", "127.0.1.1", "a is 127.0.1.1 here, which other hosts do not reach"),
        ("service", "192.0.2.1", "service is no address of this host"),  # for examples, RFC 5737
        ("192.0.2.1", "192.0.2.1", "192.0.2.1 is no address of this host"),
        ("0.0.0.0", "0.0.0.0", ""),
        ("::", "::", ""),
    ],
)
def test_it_listens_everywhere_where_it_has_to(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str, said: str
):
    def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert _served_store._listener(host, 0) is None
    assert [said in str(one.message) for one in warned] == ([True] if said else [])


def test_a_launcher_holds_its_store_for_this_host_alone():
    store = RendezvousStore(None, "mine")
    assert listening(store._held.port, os.getpid()) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "line",
    [
        ["torch_ringdist", "run", "--nproc-per-node=1", "--max-restarts=0"],
        ["torch_ringdist", "run", "--nproc-per-node=1", "--world-size=1"],
        ["torch_ringdist._launch.ringdistrun", "-np", "1"],
        ["torch_ringdist._launch.ringdistrun", "-np", "1", "--min-np", "1"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=needs_tls)])
def test_launchers_hold_stores_for_the_hosts_of_the_job(
    line: list[str], tmp_path: Path, has_key: bool
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable] if "ringdistrun" in line[0] else []
    key = key_variables(tmp_path, has_key)
    environment = {**ENVIRONMENT, **key, preloaded.PIDS: str(tmp_path / "pids")}
    done = preloaded.run(["-m", *line, *command, str(script)], env=environment, timeout=120)
    kind = "one of ringdist's" if has_key else "a TCPStore"
    assert f"{kind} at 127.0.0.1\n" in done.stdout + done.stderr, done
    assert "refused" not in done.stdout + done.stderr, done


GROUPS = """
import os, sys, time, torch, torch.distributed as dist
from torch_ringdist._generation import shared_store
dist.init_process_group("ringdist")
for group in (None, dist.new_group(backend="gloo")):
    dist.all_reduce(ones := torch.ones(3), group=group)
    assert ones[0] == 2
print("a group in", type(shared_store(dist.distributed_c10d._get_default_store())).__name__)
dist.destroy_process_group()
dist.init_process_group("gloo")
dist.all_reduce(ones := torch.ones(3))
dist.destroy_process_group()
print("another in its own", flush=True)
if os.environ["RANK"] == "0":
    time.sleep(100)
sys.exit(7)
"""


@needs_tls
def test_fixed_launchers_with_a_key(tmp_path: Path):
    key = {"RINGDIST_KEY_FILE": str(write_key(tmp_path / "job.key"))}
    script = tmp_path / "script.py"
    script.write_text(GROUPS)
    options = ["--world-size=2", f"--rdzv=127.0.0.1:{free_port()}", "--nproc-per-node=1"]
    first = Launched(tmp_path / "0", [*options, "--first-rank=0"], [str(script)], key)
    second = Launched(tmp_path / "1", [*options, "--first-rank=1"], [str(script)], key)
    with first, second:
        for launched in (first, second):
            assert launched.end() == 7, first.output() + second.output()
            assert "a group in RingdistStore\n" in launched.output()
            assert "another in its own\n" in launched.output()


@needs_tls
def test_a_fixed_launcher_with_another_key_is_refused(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text("import time; time.sleep(60)")
    options = ["--world-size=2", f"--rdzv=127.0.0.1:{free_port()}", "--nproc-per-node=1"]
    jobs = [
        Launched(
            tmp_path / str(rank),
            [*options, f"--first-rank={rank}"],
            [str(script)],
            {"RINGDIST_KEY_FILE": str(write_key(tmp_path / f"{rank}.key"))},
        )
        for rank in range(2)
    ]
    with jobs[0], jobs[1]:
        assert jobs[1].end(100) == 1, jobs[1].output()
        assert "give all processes the same file by RINGDIST_KEY_FILE" in jobs[1].output()
        assert "Traceback" not in jobs[1].output()


ELASTIC_HOROVOD = """
import torch, torch_ringdist.horovod as hvd
hvd.init()
print(hvd.size(), hvd.allreduce(torch.ones(1)).item(), hvd.broadcast_object(["in its own"])[0])
hvd.shutdown()
"""


@needs_tls
def test_horovod_finds_an_elastic_launchers_store_with_a_key(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(ELASTIC_HOROVOD)
    line = ["-m", "torch_ringdist._launch.ringdistrun", "-np", "1", "--min-np", "1"]
    key = {"RINGDIST_KEY_FILE": str(write_key(tmp_path / "job.key"))}
    done = preloaded.run(
        [*line, sys.executable, str(script)], env={**ENVIRONMENT, **key}, timeout=120
    )
    assert "1 1.0 in its own\n" in done.stdout, done


@pytest.mark.parametrize("has_key", [False, pytest.param(True, marks=needs_tls)])
def test_the_store_command_listens_where_it_says(tmp_path: Path, has_key: bool):
    port = free_port()
    line = [sys.executable, "-m", "torch_ringdist", "store", f"--rdzv=127.0.0.1:{port}"]
    key = key_variables(tmp_path, has_key)
    environment = {**ENVIRONMENT, **key}
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stderr is not None
        scheme = "ringdist://" if has_key else ""
        assert f"ranks can meet at {scheme}127.0.0.1:{port};" in holder.stderr.readline()
        assert listening(port, holder.pid) == ["127.0.0.1"]
        holder.terminate()


def test_horovods_rank_0_listens_where_it_says(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(HOROVOD)
    ours = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **ours, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    outputs = [one.communicate(timeout=120)[0] for one in ranks]
    assert outputs[0] == "a TCPStore at 127.0.0.1\n", outputs
