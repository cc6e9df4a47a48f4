"""Launchers that fork their workers from a process that has imported torch.

    python tests/chaos/preloaded.py run --nproc-per-node=4 train.py
    python tests/chaos/preloaded.py torchrun --nproc-per-node=2 train.py

A worker of a real launcher imports torch and the modules of a first step, which costs more CPU time
than most tests of training. Here a fork server has already imported them. Session, arguments, exit
handlers and exit status are as in a fresh interpreter. So is the environment, but for what Python,
torch and the loader read when they start. Output is written line by line. The interpreter itself is
taken apart at the end only if the variable FINALIZE is set. Tests of how a process starts use real
launchers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import faulthandler
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import IO, Any

SERVER = "TESTS_FORK_SERVER"  # socket of the fork server to use
_starts = threading.Lock()
_START_LIMIT, _REQUEST_LIMIT = 110.0, 10.0  # seconds
# Values of Linux, see namespaces(7) and mount(2).
_CLONE_NEWNET, _CLONE_NEWNS = 0x40000000, 0x00020000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 1 << 14, 1 << 19, 2
FINALIZE = "TESTS_FINALIZE"
PIDS = "TESTS_PIDS"  # file with the ids of the processes that were forked, a line each
NAMESPACE = "TESTS_NAMESPACE"  # network namespace of a process and of those that it starts
HURRY = "TESTS_HURRY"  # once this file exists, scripts do not sleep between steps
_PRELOADED = [
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._dynamo",  # imported by the first step of an optimizer
    "sklearn.datasets",
    "tqdm",
    "torch_ringdist.elastic",
    "torch_ringdist.horovod",
    "torch_ringdist._launch.elastic_job",
]


class ForkedProcess:
    """Replaces subprocess.Popen, by the fork server. Interpreters are forked, also those after
    `ip netns exec NAME`; other commands are executed by a fork. All of them use the same server.
    Of stdin and stderr only what launchers use is supported."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: Any = None,
        stderr: Any = None,
        cwd: str | os.PathLike[str] = ".",
        **_: Any,
    ) -> None:
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        environment = {**(os.environ if env is None else env), SERVER: server()}
        if shutil.which(args[0], path=environment.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), args[0])
        self._server = _connect(environment[SERVER])
        if stdin == subprocess.PIPE:
            source, end = os.pipe()
            self.stdin = os.fdopen(end, "wb")
        else:
            source = os.open(os.devnull, os.O_RDONLY)
        opened = [source]
        if stdout == subprocess.PIPE:
            end, out = os.pipe()
            self.stdout = os.fdopen(end, "rb")
            opened.append(out)
        else:
            out = 1 if stdout is None else stdout.fileno()
        if stderr is None or isinstance(stderr, int):
            errors = out if stderr == subprocess.STDOUT else 2
        else:
            errors = stderr.fileno()
        socket.send_fds(self._server, [b" "], [source, out, errors])
        for stream in opened:  # the process has them
            os.close(stream)
        request = [list(args), environment, os.path.abspath(cwd)]
        self._server.sendall(json.dumps(request).encode() + b"\n")
        self._answers = self._server.makefile("rb", buffering=0)  # select() must see what is unread
        if not (pid := self._answers.readline()):
            raise OSError("the fork server has not started the process")
        self.pid = int(pid)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("", timeout or 0)
            self.returncode = int(self._answers.readline() or -signal.SIGKILL)
            self._answers.close()
            self._server.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] = ".",
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """Replaces subprocess.run() for an interpreter's arguments, and captures the output."""
    command = [sys.executable, *args]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = ForkedProcess(command, env=env, stdout=out, stderr=err, cwd=cwd)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, status, *texts(out, err))


def texts(*files: IO[str]) -> list[str]:
    """Returns all that processes have written to each file."""
    for file in files:
        file.seek(0)
    return [file.read() for file in files]


def server() -> str:
    """Returns the socket of the fork server. Starts one if there is none; it ends with this
    process."""
    with _starts:
        if SERVER not in os.environ:
            folder = tempfile.TemporaryDirectory()
            atexit.register(folder.cleanup)
            address = f"{folder.name}/fork"
            process = subprocess.Popen(
                [sys.executable, __file__, "serve", address],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={"OMP_NUM_THREADS": "1", **os.environ},  # ranks share the cores of one machine
                start_new_session=True,  # Ctrl-C is for its clients only
            )
            atexit.register(process.kill)
            os.environ[SERVER] = address
        return os.environ[SERVER]


def _connect(address: str) -> socket.socket:
    """Connects to a server, which may just be starting."""
    deadline = time.monotonic() + _START_LIMIT
    while not os.path.exists(address) and time.monotonic() < deadline:
        time.sleep(0.01)
    out = socket.socket(socket.AF_UNIX)
    out.connect(address)
    return out


def _serve(address: str) -> None:
    """Serves requests until stdin ends."""
    try:
        for name in _PRELOADED:
            import_module(name)
    except BaseException:
        with open(address, "w"):  # a client finds no socket, and does not wait
            raise
    gc.freeze()  # else each collection in a forked process copies the pages of all objects
    wakes, wake = socket.socketpair()
    for end in (wakes, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address + ".")
    listener.listen(100)
    os.rename(address + ".", address)
    running: dict[int, socket.socket] = {}
    ended: dict[socket.socket, int] = {}  # zombies until their client has read the status
    while True:
        ready, _, _ = select.select([listener, wakes, sys.stdin, *ended], [], [])
        if sys.stdin in ready:
            return
        if wakes in ready:
            wakes.recv(4096)
        for client in ended.keys() & ready:
            os.waitpid(ended.pop(client), 0)
            client.close()
        if listener in ready:
            client, _ = listener.accept()
            client.settimeout(_REQUEST_LIMIT)
            streams, line = _request(client)
            pid = _fork() if line else None
            if pid == 0:
                os.setsid()
                _say(client, os.getpid())
                for one in (listener, wakes, wake, client, *running.values(), *ended):
                    one.close()
                _run(streams, *json.loads(line))
            if pid:
                running[pid] = client
            else:
                client.close()
            for stream in streams:
                os.close(stream)
        for pid, client in [*running.items()]:
            if status := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                was_killed = status.si_code != os.CLD_EXITED
                _say(client, -status.si_status if was_killed else status.si_status)
                ended[running.pop(pid)] = pid


def _request(client: socket.socket) -> tuple[Sequence[int], str]:
    """Returns stdin, stdout and stderr of a process, and a line that describes it, which is empty
    if the client has ended."""
    streams: list[int] = []
    with contextlib.suppress(OSError):
        _, streams, _, _ = socket.recv_fds(client, 1, 3)
        return streams, client.makefile().readline()
    return streams, ""


def _fork() -> int | None:
    """Does the same as os.fork(), and returns None on failure, which the client reports."""
    with contextlib.suppress(OSError):
        return os.fork()
    return None


def _say(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client has ended
        client.sendall(f"{number}\n".encode())


def _run(
    streams: Sequence[int], command: list[str], environment: dict[str, str], folder: str
) -> None:
    """Runs `command` in this forked process, which ends. With FINALIZE an exception ends it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # the environment may name another folder
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    if command[:3] == ["ip", "netns", "exec"] and command[4] == sys.executable:
        os.environ[NAMESPACE] = command[3]
        command = command[4:]
    if NAMESPACE in os.environ:
        enter(os.environ[NAMESPACE])
    if command[0] not in (sys.executable, "python"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
        os.execvpe(command[0], command, environment)
    if "PYTHONFAULTHANDLER" in environment:
        faulthandler.enable()
    if PIDS in environment:
        with open(environment[PIDS], "a") as file:
            file.write(f"{os.getpid()}\n")
    words = command[2:] if command[1] == "-u" else command[1:]
    if FINALIZE in os.environ:
        atexit.register(gc.unfreeze)  # the last of its handlers
        _execute(words)
        sys.exit()
    status = 0
    try:
        _execute(words)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        status = 1
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def enter(namespace: str) -> None:
    """Does the same as `ip netns exec`, in a process with one thread."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *args: int | bytes | ctypes.c_ulong | None) -> None:
        if getattr(libc, name)(*args):
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")

    file = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    call("setns", file, _CLONE_NEWNET)
    os.close(file)
    call("unshare", _CLONE_NEWNS)
    call("mount", b"none", b"/", None, ctypes.c_ulong(_MS_SLAVE | _MS_REC), None)
    call("umount2", b"/sys", _MNT_DETACH)  # it belongs to another network
    call("mount", b"sysfs", b"/sys", b"sysfs", ctypes.c_ulong(0), None)


def _execute(words: list[str]) -> None:
    """Runs a script, module or code as the main program."""
    is_module, is_code = words[0] == "-m", words[0] == "-c"
    sys.argv = words[1:] if is_module else words[:1] + words[2:] if is_code else words
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if HURRY in os.environ:
        time.sleep = _sleep
    if is_module:
        sys.path[0] = os.getcwd()
        if words[1].startswith("torch_ringdist"):
            fork_workers()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif is_code:
        sys.path[0] = ""
        sys.modules["__main__"] = main = ModuleType("__main__")  # so classes can be pickled
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def fork_workers() -> None:
    """Makes the launchers of torch_ringdist fork their workers, in this process."""
    from torch_ringdist._launch import remote_command, worker

    forking = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedProcess})
    worker.subprocess = remote_command.subprocess = forking  # type: ignore[assignment]


def _sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    is_script = sys._getframe(1).f_globals["__name__"] == "__main__"
    if not (is_script and os.path.exists(os.environ[HURRY])):
        sleep(seconds)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        return _serve(sys.argv[2])
    if sys.argv[1:2] == ["torchrun"]:
        from torch.distributed import run
        from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

        subprocess_handler.Popen = ForkedProcess  # type: ignore[assignment, misc]
        return run.main(sys.argv[2:])
    from torch_ringdist import __main__ as command_line

    fork_workers()
    sys.exit(command_line.main())


if __name__ == "__main__":
    main()
