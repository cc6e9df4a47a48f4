"""Connections between hosts are encrypted with the key of the job. Here all ranks are on one host,
and transport tcp is forced."""

from __future__ import annotations

import os
import re
import resource
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.job_key import needs_tls
from support.launched import preloaded
from support.pool import Pool
from support.rank import Ranks, caught, init, poll
from support.store import ForwardingStore
from test_shrink_stopped import PEER_TIMEOUT, leave_the_sleeper_behind

from torch_ringdist import _dump as dumps
from torch_ringdist.__main__ import main

pytestmark = [
    needs_tls,
    pytest.mark.default_of("RINGDIST_TRANSPORT", reason="a key needs transport tcp"),
]


def _command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return preloaded.run(["-m", "torch_ringdist", *words], env=environment, timeout=60)


def _new_key(path: Path) -> Path:
    done = _command("key", "new", str(path))
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return _new_key(tmp_path / "job.key")


def test_a_new_key_is_of_its_user_alone(key: Path):
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    again = _command("key", "new", str(key))
    assert again.returncode != 0 and str(key) in again.stderr
    assert "Traceback" not in again.stderr


def test_a_disk_that_is_full_gets_no_part_of_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        assert main(["key", "new", str(tmp_path / "job.key")]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "key: [Errno 27] File too large" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


Start = Callable[..., Pool]


@pytest.fixture
def start(fresh_pool: Callable[..., Pool]) -> Start:
    def start(size: int, key: Path, transport: str = "tcp", **more: Any) -> Pool:
        settings = {"RINGDIST_TRANSPORT": transport, "RINGDIST_KEY_FILE": str(key)}
        return fresh_pool(size, environment=settings, **more)

    return start


def _everything() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in (1, 1000, 300_007, 4_000_037):
        given = torch.arange(count, dtype=torch.int64)
        dist.all_reduce(tensor := given * (rank + 1))
        assert tensor.equal(given * (size * (size + 1) // 2))
    parts = torch.arange(size * 100_000) + rank
    dist.all_to_all_single(got := torch.empty_like(parts), parts)
    given = torch.arange(100_000) + rank * 100_000
    assert got.equal(torch.cat([given + peer for peer in range(size)]))


def _ports() -> list[tuple[str, int]]:
    """Returns the addresses at which this process listens."""
    own = {
        os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
    }
    out = []
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
            ip, port = fields[1].split(":")
            out.append((socket.inet_ntoa(bytes.fromhex(ip)[::-1]), int(port, 16)))
    return out


def _is_refused(address: tuple[str, int], version: ssl.TLSVersion) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    try:
        with (
            socket.create_connection(address, timeout=20) as plain,
            context.wrap_socket(plain) as secure,
        ):
            secure.recv(1)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def test_ranks_with_the_key_work_and_strangers_are_refused(start: Start, key: Path):
    pool = start(3, key)
    pool.run(_everything)
    for addresses in pool.run(_ports):
        assert len(addresses) == 1, "a process has one port"
        assert _is_refused(addresses[0], ssl.TLSVersion.TLSv1_2)
        assert _is_refused(addresses[0], ssl.TLSVersion.TLSv1_3)
        with socket.create_connection(addresses[0], timeout=20) as plain:
            plain.sendall(b"x" * 200)
            with pytest.raises(ConnectionError):
                while plain.recv(1000):  # an alert of TLS
                    pass
                raise ConnectionResetError
    pool.run(_everything)


def _dump(pid: int, key: Path | None) -> subprocess.CompletedProcess[str]:
    return _command("dump", str(pid), RINGDIST_KEY_FILE=str(key or ""))


def test_inside_a_host_only_the_key_opens_sockets(start: Start, key: Path, tmp_path: Path):
    pool = start(3, key, "shm,tcp")
    pool.run(_everything)
    pid = pool.run(os.getpid)[0]
    assert "rank 0 of 3" in _dump(pid, key).stdout
    refused = _dump(pid, None)
    assert refused.returncode == 1 and f"kill -USR1 {pid}" in refused.stderr, refused
    second = _new_key(tmp_path / "second.key")

    def is_told() -> bool:  # at most once in a second
        return _dump(pid, second).returncode == 1 and "it has another key" in pool.log(0)

    assert poll(is_told), pool.log(0)
    [name] = dumps.find(pid)
    with socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(20)
        plain.connect("\0" + name)
        to = bytes.fromhex(name[-16:])[::-1]  # a hello that proves the host needs no group
        plain.sendall(struct.pack("<IB4sI8s8s8s", 32, 1, b"Rdtl", 1, b"12345678", to, bytes(8)))
        answer = plain.recv(1000)
        assert answer[:2] in (b"\x15\x03", b""), answer  # an alert of TLS
    pool.run(_everything)


def test_dump_with_a_key_shows_a_rank_without_one(fresh_pool: Callable[..., Pool], key: Path):
    pid = fresh_pool(1).run(os.getpid)[0]
    done = _dump(pid, key)
    assert done.stdout.startswith(f"has not proven the key: ringdist: process {pid} on "), done


# A stopped process gets the decision without a handshake, and finds out that it is excluded.
def test_a_rank_that_stopped_is_left_behind(fresh_pool: Callable[..., Pool], key: Path):
    variables = {"RINGDIST_PEER_TIMEOUT": str(PEER_TIMEOUT), "RINGDIST_KEY_FILE": str(key)}
    leave_the_sleeper_behind(fresh_pool(3, environment=variables))


class _RecordingStore(ForwardingStore):
    def __init__(self, store: dist.Store) -> None:
        super().__init__(store)
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        self.values[key] = value.encode() if isinstance(value, str) else value
        super().set(key, value)


def _published() -> dict[str, bytes]:
    Ranks.store = store = _RecordingStore(Ranks.store)
    init()
    dist.all_reduce(torch.ones(3))
    return store.values


def test_the_store_learns_neither_host_nor_address(start: Start, key: Path):
    host = socket.gethostname().encode()
    open_texts = [b"127.0.0.1", b"ringdist-"]
    if len(host) > 5:  # a shorter one may be in random bytes
        open_texts.append(host)
    for values in start(2, key, init=False).run(_published):
        assert values
        for name, value in values.items():
            assert not [text for text in open_texts if text in value], name


@pytest.mark.parametrize("other", [True, False], ids=["another", "none"])
def test_a_rank_with_another_key_is_named_everywhere(
    start: Start, key: Path, tmp_path: Path, other: bool
):
    second = str(_new_key(tmp_path / "second.key")) if other else None
    for error in start(3, key, init=False).run(_begin, second):
        assert "rank 1" in error and "key" in error, error


def _begin(key: str | None) -> str:
    if Ranks.rank == 1:
        os.environ.pop("RINGDIST_KEY_FILE")
        if key:
            os.environ["RINGDIST_KEY_FILE"] = key
    init()
    return caught(dist.all_reduce, torch.ones(10)).text


def _bad_files(folder: str) -> dict[str, str]:
    out = {}
    for name, size, mode in (("short", 31, 0o600), ("open", 32, 0o640), ("long", 33, 0o600)):
        path = Path(folder) / name
        path.write_bytes(b"k" * size)
        path.chmod(mode)
    for name in ("short", "open", "long", "absent", ""):
        os.environ["RINGDIST_KEY_FILE"] = str(Path(folder) / name)
        out[name] = caught(init, name or "folder").text
    os.environ["RINGDIST_KEY_FILE"] = str(Path(folder) / "short")
    os.environ["RINGDIST_TRANSPORT"] = "shm,ucx"
    out["ucx"] = caught(init, "ucx").text
    return out


def test_each_bad_key_has_its_error(start: Start, key: Path, tmp_path: Path):
    (errors,) = start(1, key, init=False).run(_bad_files, str(tmp_path))
    for name, text in errors.items():
        assert "RINGDIST_KEY_FILE" in text, (name, text)
    assert "has 31 bytes, not 32" in errors["short"]
    assert "mode 0640" in errors["open"] and "chmod 600" in errors["open"]
    assert "has 33 bytes, not 32" in errors["long"]
    assert "No such file" in errors["absent"]
    assert "is no regular file" in errors[""]
    assert re.search("ucx does not encrypt: use shm,tcp", errors["ucx"])
