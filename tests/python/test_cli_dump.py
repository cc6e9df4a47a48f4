"""python -m torch_ringdist dump: states of processes, and the reasons why there is none."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import torch_ringdist
from torch_ringdist import _dump, _native
from torch_ringdist.__main__ import main

FRAME = struct.Struct("<IB")
PACKAGE_PARENT = str(Path(torch_ringdist.__file__).resolve().parents[1])


def test_dump_of_a_process_with_a_group():
    code = (
        "import torch, torch_ringdist, torch.distributed as dist\n"
        "dist.init_process_group('ringdist', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.barrier()\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": PACKAGE_PARENT},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        [text] = _dump.ask(child.pid, timeout=60)
        assert str(child.pid) in text
    finally:
        child.communicate("\n", timeout=30)
    assert child.returncode == 0


@contextlib.contextmanager
def serve(answer: Callable[[socket.socket], None], suffix: str) -> Iterator[socket.socket]:
    """Listens like a Context of this process. `answer` handles one connection."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0ringdist-{os.getpid()}-{suffix}")
    listener.listen()

    def run():
        with contextlib.suppress(OSError):  # closed by the test before any connection
            peer, _ = listener.accept()
            with peer:
                answer(peer)

    threading.Thread(target=run, daemon=True).start()
    with listener:
        yield listener
        listener.shutdown(socket.SHUT_RDWR)  # ends a thread that nobody has connected to


def reply(text: str, kind: int = 0x21) -> Callable[[socket.socket], None]:
    def answer(peer: socket.socket) -> None:
        assert peer.recv(FRAME.size, socket.MSG_WAITALL) == FRAME.pack(0, 0x20)
        body = text.encode()
        frame = FRAME.pack(len(body), kind) + body
        peer.sendall(frame[:3])  # frames may arrive in pieces
        peer.sendall(frame[3:])

    return answer


def test_dump_prints_every_context_after_a_line_of_each(capsys):
    with (
        serve(reply("op 12 allreduce, waiting for rank 3 ü\n  more\n"), "00000000000000ab"),
        serve(reply("idle"), "00000000000000cd"),
    ):
        assert main(["dump", str(os.getpid())]) == 0
    line = "op 12 allreduce, waiting for rank 3 ü\n"
    assert capsys.readouterr().out == f"{line}idle\n\n{line}  more\n\nidle\n"


def test_dump_of_all_shows_what_it_gets_and_says_what_it_does_not(monkeypatch, capsys):
    def only_ours(names=_dump.find_all):
        return [found for found in names() if found[0] == os.getpid()]

    monkeypatch.setattr(_dump, "find_all", only_ours)
    assert main(["dump", "--all"]) == 1
    assert "no process of this user has a ringdist group" in capsys.readouterr().err
    with (
        serve(reply("busy\n  more\n"), "00000000000000ab"),
        serve(lambda peer: None, "00000000000000cd"),
    ):
        assert main(["dump", "--all"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "busy\n  more\n"
    assert f"torch_ringdist dump: process {os.getpid()} closed the connection" in captured.err


def test_dump_takes_no_other_socket_for_a_context():
    with serve(reply(""), "0123"), serve(reply(""), "00000000000000ab-x"):
        assert _dump.find(os.getpid()) == []


def test_dump_skips_names_of_any_bytes():
    # Abstract names are those of the machine, and another process may run this test.
    number = b"%d" % os.getpid()
    forged = b"\n%s Ref Proto flags Type St Inode @ringdist-1-0123456789abcdef" % number
    with contextlib.ExitStack() as stack:
        own = f"ringdist-{os.getpid()}-00000000000000ab"
        for name in (number + b"\xff", number + b"\x85\r", forged, own.encode()):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(b"\0" + name)
            listener.listen()
        assert _dump.find(os.getpid()) == [own]


LISTEN = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(chr(0) + sys.argv[1])
listener.listen()
print(flush=True)
sys.stdin.read()
"""


def test_dump_asks_the_process_itself():
    """Another process listens at a name of its sockets, as any user can."""
    name = f"ringdist-{os.getpid()}-0000000000000000"
    command = [sys.executable, "-c", LISTEN, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"\n"
        with pytest.raises(_dump.DumpError, match=f"pid {other.pid} of uid {os.getuid()}"):
            _dump.ask(os.getpid())
        with serve(reply("idle"), "00000000000000ab"):
            assert _dump.ask(os.getpid()) == ["idle"]
        other.stdin.close()


def test_dump_with_a_key_marks_a_process_that_has_not_proven_it(monkeypatch):
    def refuse(*_: object) -> str:
        raise RuntimeError("it closed the connection")

    monkeypatch.setenv("RINGDIST_KEY_FILE", "job.key")
    monkeypatch.setattr(_native.load(), "report_of", refuse)
    with serve(reply("idle"), "00000000000000ab"):
        assert _dump.ask(os.getpid()) == ["has not proven the key: idle"]
    refused = pytest.raises(_dump.DumpError, match="does not answer with the key")
    with serve(lambda peer: None, "00000000000000ab"), refused:
        _dump.ask(os.getpid())


def test_dump_of_no_process(capsys):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert main(["dump", str(child.pid)]) == 1
    assert f"there is no process {child.pid}" in capsys.readouterr().err


def test_dump_of_a_process_without_a_group(capsys):
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert main(["dump", str(child.pid)]) == 1
    finally:
        child.kill()
        child.wait()
    assert f"process {child.pid} has no ringdist group" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "timeout", "message"),
    [
        (lambda peer: None, 20, "closed the connection"),
        (lambda peer: threading.Event().wait(60), 0.3, "py-spy dump"),
        (reply("?", kind=0x7F), 20, "answered with frame type 0x7f"),
    ],
    ids=["closes", "silent", "other version"],
)
def test_dump_that_gets_no_answer(
    answer: Callable[[socket.socket], None], timeout: float, message: str
):
    refused = pytest.raises(_dump.DumpError, match=message)
    with serve(answer, "00000000000000ab"), refused:
        _dump.ask(os.getpid(), timeout=timeout)


@pytest.mark.parametrize("arguments", [["rank0"], [], ["1", "--all"]])
def test_dump_needs_a_number_or_all(arguments: list[str]):
    with pytest.raises(SystemExit) as caught:
        main(["dump", *arguments])
    assert caught.value.code == 2
