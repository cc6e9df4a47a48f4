"""A job of ``python -m torch_ringdist run``, observed by the events that it writes."""

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
    """Returns a PYTHONPATH with which scripts elsewhere find this package and its parent folder."""
    packages = str(Path(torch_ringdist.__file__).resolve().parents[1])
    return os.pathsep.join([packages, *filter(None, [os.environ.get("PYTHONPATH")])])


class Launched:
    """Context manager of a job. Leaving it ends all processes that the job started."""

    def __init__(
        self,
        folder: Path,
        options: list[str],
        script: list[str],
        variables: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
    ) -> None:
        """Starts the job. `enter` is a command prefix, such as `ip netns exec NAME`."""
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
        with self._output.open("wb") as output:
            self._process = preloaded.ForkedProcess(
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
        """Returns the address of the store, for --rdzv."""
        return self.wait_for(lambda: self.events("launched"))[0]["address"]

    def events(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """Returns the events with this name and these field values."""
        return [
            line
            for line in read_events(self._folder.glob("*events.jsonl"))
            if line["event"] == name and all(line.get(key) == fields[key] for key in fields)
        ]

    def pids(self) -> list[int]:
        """Returns the ids of workers that have not ended, according to the launcher's events."""
        started = [one["worker_pid"] for one in self.events("worker_started")]
        ended = {one["worker_pid"] for one in self.events("worker_ended")}
        return [pid for pid in started if pid not in ended]

    def members(self) -> dict[int, int]:
        """Does the same as members_of(), for this job alone."""
        return members_of([self])

    def wait_for(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Waits until `condition` returns a true value, and returns it."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s\n{self.output()}")
            if self._process.poll() is not None and not condition():
                raise AssertionError(f"the launcher has ended before\n{self.output()}")
            time.sleep(_POLL)
        return value

    def wait_for_size(self, size: int, seconds: float = 60.0) -> dict[int, int]:
        """Waits until a generation of this size has begun on all its ranks."""
        return self.wait_for(lambda: len(m := self.members()) == size and m, seconds)

    def hurry(self) -> None:
        """Ends the script's --pause, because the awaited event has happened."""
        (self._folder / "hurry").touch()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the launcher."""
        self._process.send_signal(number)

    def end(self, seconds: float = 90.0) -> int:
        """Waits for the launcher and returns its exit status."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in self.pids():  # prints the dump of ringdist
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(f"no end within {seconds:g} s\n{self.output()}") from None

    def output(self) -> str:
        """Returns the output of the launcher and of each worker."""
        files = [self._output, *sorted(self._folder.glob("*worker-*.log"))]
        texts = [f"---- {file.name}\n{file.read_text(errors='replace')}" for file in files]
        return "\n".join(texts)


def read_events(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Returns the events in those of the files that exist."""
    texts = [file.read_text() for file in files if file.exists()]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def members_of(jobs: Sequence[Launched]) -> dict[int, int]:
    """Does the same as newest_members(), for all jobs together."""
    return newest_members([one for job in jobs for one in job.events("generation")])


def newest_members(events: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Returns process ids by rank for the newest generation that any rank has reported."""
    told = [one for one in events if one["event"] == "generation"]
    newest = max((one["generation"] for one in told), default=-1)
    return {one["rank"]: one["pid"] for one in told if one["generation"] == newest}
