"""Tests reconfigure() of torch 2.14 the way PyTorch's fault tolerance calls it.

    python tools/smoke_reconfigure.py

It starts four processes, each with its own store that ends with it, and passes their handles
through pipes. Members are excluded and return, and two groups become one. It also tests a set of
handles, an abort, an absent member, a death and bad requests. It raises if a result is wrong.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

import torch_ringdist

PROCESSES = 4
LIMIT = timedelta(seconds=20)


class Member:
    """Functions that a process runs on request; its group is the default group."""

    def handle(self) -> str:
        return dist._get_reconfigure_handle()

    def form(self, uuid: int, handles: list[str] | set[str], seconds: float = 20.0) -> int:
        """Forms a group, checks its sums, and returns this process' rank."""
        dist._reconfigure(uuid, handles, timeout=timedelta(seconds=seconds)).wait()
        group: Any = dist.group.WORLD
        assert group.size() == len(handles), (group.size(), handles)
        self.sum_is_right()
        return group.rank()

    def fails(self, *args: Any) -> str:
        """Returns the error of form()."""
        try:
            self.form(*args)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError(f"form{args} did not raise")

    def sum_is_right(self) -> None:
        group: Any = dist.group.WORLD
        tensor = torch.full((1000,), float(group.rank() + 1))
        dist.all_reduce(tensor)
        size = group.size()
        assert torch.equal(tensor, torch.full_like(tensor, size * (size + 1) / 2)), tensor

    def sum_fails(self) -> str:
        try:
            dist.all_reduce(torch.ones(3))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError("a sum without members did not raise")

    def abort(self) -> str:
        group: Any = dist.group.WORLD
        group.abort()
        return str(group._get_backend(torch.device("cpu")).get_error())

    def shrink(self) -> tuple[int, ...]:
        _, report = torch_ringdist.shrink(timeout=LIMIT)
        self.sum_is_right()
        return report.stayed


def serve(commands: Connection) -> None:
    # A TCP store stops answering when its process ends; other stores could not be shared.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    dist.init_process_group(
        "ringdist", store=store, rank=0, world_size=1, timeout=LIMIT, enable_reconfigure=True
    )
    assert dist._supports_reconfigure()
    member = Member()
    commands.send(None)
    while command := commands.recv():
        name, args = command
        try:
            commands.send(getattr(member, name)(*args))
        except BaseException as error:
            commands.send(error)
            raise


class Processes:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for _ in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs,), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        for pipe in self.pipes:
            self._answer(pipe)

    def call(self, which: Sequence[int], name: str, *args: Any) -> list[Any]:
        for one in which:
            self.pipes[one].send((name, args))
        return [self._answer(self.pipes[one]) for one in which]

    def kill(self, which: int) -> None:
        os.kill(self.processes[which].pid, signal.SIGKILL)
        self.processes[which].join()

    def _answer(self, pipe: Connection) -> Any:
        if not pipe.poll(60):
            raise TimeoutError("a process does not answer")
        answer = pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                continue
        for process in self.processes:
            process.join(20)
            process.kill()


def says(text: str, *parts: str) -> None:
    for part in parts:
        assert part in text, f"{part!r} is not in {text!r}"


def changes_of_members(all_of: Processes, handles: list[str]) -> None:
    says(all_of.call([0], "sum_fails")[0], "call reconfigure() first")
    pick = lambda *which: [handles[one] for one in which]  # noqa: E731
    ranks = all_of.call([0, 1], "form", 1, pick(1, 0))
    assert ranks == [1, 0], ranks
    for one in (2, 3):  # beside it
        all_of.pipes[one].send(("form", (2, pick(2, 3))))
    assert [all_of._answer(all_of.pipes[one]) for one in (2, 3)] == [0, 1]
    assert all_of.call(range(4), "form", 3, pick(0, 1, 2, 3)) == [0, 1, 2, 3]  # two become one
    assert all_of.call([3, 1], "form", 4, pick(3, 1)) == [0, 1]  # two members are excluded
    assert all_of.call([0], "form", 5, pick(0)) == [0]  # the excluded members still work
    ordered = sorted(handles)
    ranks = all_of.call(range(4), "form", 6, set(handles))
    assert [ordered[rank] for rank in ranks] == handles, "a set is sorted"


def bad_requests(all_of: Processes, handles: list[str]) -> None:
    def refused(*args: Any) -> str:
        return all_of.call([0], "fails", *args)[0]

    says(refused(6, handles), "ArgumentError", "uuid: 6 was already used")
    says(refused(7, handles[1:]), "ArgumentError", "own is not among the 3")
    says(refused(7, [*handles, handles[2]]), "ArgumentError", "handles: 4 of 5", "twice")
    says(refused(7, [*handles, "abc"]), "ArgumentError", "'abc' is no handle")
    all_of.call(range(4), "sum_is_right")
    says(refused(8, handles[:2], 1.0), "Error")  # the other member does not come
    all_of.call(range(4), "sum_is_right")  # the members are unchanged


def aborts_and_deaths(all_of: Processes, handles: list[str]) -> None:
    assert all("SUCCESS" in error for error in all_of.call(range(4), "abort"))
    assert all_of.call(range(4), "form", 9, handles) == [0, 1, 2, 3]
    all_of.kill(0)  # its store goes with it
    for text in all_of.call([1, 2, 3], "sum_fails"):
        says(text, "DistNetworkError")
    says(all_of.call([1], "fails", 10, handles[:2])[0], "DistNetworkError", "has most likely ended")
    assert all_of.call([1, 2, 3], "form", 11, handles[1:]) == [0, 1, 2]
    all_of.kill(3)
    for text in all_of.call([1, 2], "sum_fails"):
        says(text, "DistNetworkError")
    assert all_of.call([1, 2], "shrink") == [(0, 1)] * 2


def of_a_file() -> None:
    """Tests a FileStore, which is not shared."""
    with tempfile.NamedTemporaryFile() as file:
        store = dist.FileStore(file.name, 1)
        dist.init_process_group(
            "ringdist", store=store, rank=0, world_size=1, enable_reconfigure=True
        )
        dist._reconfigure(1, [dist._get_reconfigure_handle()]).wait()
        Member().sum_is_right()
        dist.destroy_process_group()


def main() -> int:
    all_of = Processes()
    try:
        handles = all_of.call(range(PROCESSES), "handle")
        assert handles == all_of.call(range(PROCESSES), "handle")
        steps: list[Callable[[Processes, list[str]], None]] = [
            changes_of_members,
            bad_requests,
            aborts_and_deaths,
        ]
        for step in steps:
            step(all_of, handles)
            print(f"{step.__name__}: good", flush=True)
    finally:
        all_of.close()
    of_a_file()
    print("of_a_file: good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
