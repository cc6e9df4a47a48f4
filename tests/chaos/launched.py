"""A job of ``python -m torch_ringdist run``, watched through the events that it writes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch_ringdist
from tests.chaos import preloaded

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_POLL = 0.02


def python_path() -> str:
    """By which a script that is somewhere else finds this package, and what is beside it."""
    packages = str(Path(torch_ringdist.__file__).resolve().parents[1])
    return os.pathsep.join([packages, *filter(None, [os.environ.get("PYTHONPATH")])])


class Launched:
    """A context; when it ends, so has all that it started."""

    def __init__(
        self,
        folder: Path,
        options: list[str],
        script: list[str],
        variables: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
    ) -> None:
        """`enter`: words before the command, as `ip netns exec NAME`."""
        self._folder = folder
        self._output = folder / "launcher.out"
        folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": python_path(),
            preloaded.HURRY: str(folder.resolve() / "hurry"),
            **(variables or {}),
        }
        command = [*enter, sys.executable, "-u", preloaded.__file__, "run", f"--log-dir={folder}"]
        start = subprocess.Popen if enter else preloaded.ForkedProcess
        if enter:  # its fork server is to be there, too
            environment.pop(preloaded.SERVER, None)
        else:
            environment[preloaded.SERVER] = preloaded.server()
        with self._output.open("wb") as output:
            self._process: Any = start(
                [*command, *options, *script],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
            )

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def address(self) -> str:
        """Of the store, for --rdzv."""
        return self.wait_for(lambda: self.events("launched"))[0]["address"]

    def events(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """Those of that name with these fields."""
        return [
            line
            for line in read_events(self._folder.glob("*events.jsonl"))
            if line["event"] == name and all(line.get(key) == fields[key] for key in fields)
        ]

    def pids(self) -> list[int]:
        """Of the workers that have not ended, as far as the launcher has said so."""
        started = [one["worker_pid"] for one in self.events("worker_started")]
        ended = {one["worker_pid"] for one in self.events("worker_ended")}
        return [pid for pid in started if pid not in ended]

    def members(self) -> dict[int, int]:
        """As members_of(), of this job alone."""
        return members_of([self])

    def wait_for(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """What it returns once that is true."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s\n{self.output()}")
            if self._process.poll() is not None and not condition():
                raise AssertionError(f"the launcher has ended before\n{self.output()}")
            time.sleep(_POLL)
        return value

    def wait_for_size(self, size: int, seconds: float = 60.0) -> dict[int, int]:
        """Until a generation of so many ranks has begun on all of them."""
        return self.wait_for(lambda: len(m := self.members()) == size and m, seconds)

    def hurry(self) -> None:
        """What is to happen has happened: the script's --pause is over."""
        (self._folder / "hurry").touch()

    def send(self, number: signal.Signals) -> None:
        """To the launcher."""
        self._process.send_signal(number)

    def end(self, seconds: float = 90.0) -> int:
        """The launcher's exit status."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in self.pids():  # ringdist's dump
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(f"no end within {seconds:g} s\n{self.output()}") from None

    def output(self) -> str:
        """Of the launcher, and what each worker has written."""
        files = [self._output, *sorted(self._folder.glob("*worker-*.log"))]
        texts = [f"---- {file.name}\n{file.read_text(errors='replace')}" for file in files]
        return "\n".join(texts)


def read_events(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Of those that are there."""
    texts = [file.read_text() for file in files if file.exists()]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def members_of(jobs: Sequence[Launched]) -> dict[int, int]:
    """As newest_members(), of all of them."""
    return newest_members([one for job in jobs for one in job.events("generation")])


def newest_members(events: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Process ids by rank, as of the newest generation that a rank has told of."""
    told = [one for one in events if one["event"] == "generation"]
    newest = max((one["generation"] for one in told), default=-1)
    return {one["rank"]: one["pid"] for one in told if one["generation"] == newest}
