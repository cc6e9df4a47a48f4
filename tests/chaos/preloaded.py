"""`python -m torch_ringdist run`, with workers that are forked from a process that has torch.

    python tests/chaos/preloaded.py run --nproc-per-node=4 train.py

A worker of a real launcher imports torch, which costs more CPU time than most tests of elastic
training. Here a fork server has imported it. What follows is as in a fresh interpreter: session,
output, environment, arguments, exit handlers and exit status. Tests whose subject is how a process
starts use the real launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from types import SimpleNamespace
from typing import Any, BinaryIO

_PRELOADED = ["torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "numpy"]
_context = multiprocessing.get_context("forkserver")


class ForkedProcess:
    """The part of subprocess.Popen that a launcher needs of its workers."""

    def __init__(
        self, command: Sequence[str], *, stdout: BinaryIO, env: Mapping[str, str], **_: Any
    ) -> None:
        self.returncode: int | None = None
        arguments = (list(command), stdout.name, dict(env), os.getcwd())
        self._process = _context.Process(target=_run, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode


def _run(command: list[str], log: str, environment: dict[str, str], folder: str) -> None:
    """Runs `command`, an interpreter's, in this forked process, and ends it."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    if command[:2] != [sys.executable, "-u"]:
        os.execvpe(command[0], command, environment)
    os._exit(_interpret(command[2:]))


def _interpret(words: list[str]) -> int:
    """The exit status of a script or module, after its threads and exit handlers have ended."""
    is_module = words[0] == "-m"
    sys.argv = words[1:] if is_module else words
    status = 0
    try:
        if is_module:
            sys.path[0] = os.getcwd()
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
            runpy.run_path(words[0], run_name="__main__")
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
    return status


def main() -> None:
    _context.set_forkserver_preload(_PRELOADED)
    forkserver.ensure_running()  # both processes import torch at the same time

    from torch_ringdist import __main__ as command_line
    from torch_ringdist._launch import worker

    worker.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=ForkedProcess, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT
    )
    sys.exit(command_line.main())


if __name__ == "__main__":
    main()
