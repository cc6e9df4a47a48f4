"""RINGDIST_COSTS in groups: rank 0's costs apply to all, and every rank names differences."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import torch
from support.rank import Ranks, caught, store_for

from torch_ringdist import _native, _registration
from torch_ringdist._costs import Costs, Link

LINK = Link(200, 4e10, 1e10, 300, 72)
SLOWER = Link(50000, 1e8, 1e9, 5000, 72)


def written(path: Path, between: Link = LINK) -> str:
    Costs(LINK, between).to_file(path)
    return str(path)


def _form(name: str, files: list[str]) -> tuple[str, str]:
    """Returns the error of a group's operation or creation, and the dump's line about costs."""
    rank, size = Ranks.rank, Ranks.launch.size
    options = {"costs": files[rank]} if files[rank] else {}
    group = None

    def reduce():
        nonlocal group
        group = _native.load().create_backend(
            store_for(name),
            rank,
            size,
            timedelta(seconds=20),
            f"costs {name}",
            list(range(size)),
            options,
            _registration.read_costs,
        )
        group.allreduce([torch.ones(5)]).wait()

    error = str(caught(reduce)) if name.startswith("bad") else reduce() or ""
    dump = _native.load().dump()
    if group is not None and not error:
        group.shutdown()
    lines = [line for line in dump.splitlines() if f"group 'costs {name}'" in line]
    return error, "\n".join(lines)


@pytest.mark.parametrize("by_all", [False, True])
def test_all_plan_by_those_of_rank_0(fresh_pool, tmp_path: Path, by_all: bool):
    files = [written(tmp_path / "a.json")] + ["", written(tmp_path / "b.json")] * by_all
    files += [""] * (3 - len(files))
    for error, dump in fresh_pool(3).run(_form, f"good {by_all}", files):
        assert error == ""
        assert f"plans by the costs of '{files[0]}', a file of rank 0," in dump


def test_built_in_where_rank_0_names_none(fresh_pool):
    for error, dump in fresh_pool(2).run(_form, "good built in", ["", ""]):
        assert error == "" and "plans by the built-in costs, " in dump


@pytest.mark.parametrize("first", ["", "a.json"])
def test_others_are_named_on_every_rank(fresh_pool, tmp_path: Path, first: str):
    ours = written(tmp_path / first) if first else ""
    theirs = written(tmp_path / "b.json", SLOWER)
    for error, _ in fresh_pool(3).run(_form, f"bad {first}", [ours, "", theirs]):
        assert "rank 0 (" in error and "rank 2 (" in error, error
        assert f"the costs of '{ours}'" in error if ours else "the built-in costs" in error
        what = "between.latency_ns is 50000, not 200" if ours else "inside.latency_ns is 200, not"
        assert f"the costs of '{theirs}', whose {what}" in error, error


def test_a_file_that_is_none_is_told_to_all(fresh_pool, tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text("{}")
    for rank, (error, _) in enumerate(fresh_pool(2).run(_form, "bad file", ["", str(path)])):
        assert f"costs file '{path}': 'format' must be" in error, error
        assert ("rank 1 ended the group before" in error) == (rank == 0), error
