"""Residuals of compression in an elastic.State, as shares of the mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from torch_ringdist import elastic
from torch_ringdist.elastic._residuals import Residuals


class FakeHandle:
    """Fake handle of compress()."""

    def __init__(self, owed: dict[str, torch.Tensor] | None = None) -> None:
        self.owed, self.steps = owed or {}, 0

    def state_dict(self, *, local: bool) -> dict[str, Any]:
        assert local
        owed = {name: one.clone() for name, one in self.owed.items()}
        return {"version": 1, "steps": self.steps, "scale": 1, "world_size": 1, "residuals": owed}

    def _committed(self) -> dict[str, Any]:
        owed = {name: one + 1 for name, one in self.owed.items()}  # residuals of a step that failed
        return {**self.state_dict(local=True), "steps": self.steps + 1, "residuals": owed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.owed, self.steps = dict(state["residuals"]), state["steps"]


def _owing(size: int, value: float) -> tuple[Residuals, FakeHandle]:
    residuals, handle = Residuals(), FakeHandle({"w": torch.full((3,), value)})
    residuals.begin(size)
    residuals.add(handle)  # type: ignore[arg-type]
    handle.owed = {"w": torch.full((3,), value)}
    handle.steps = 7
    residuals.take()
    return residuals, handle


def _share(residuals: Residuals) -> float:
    return residuals.owed()[0]["residuals"]["w"][0].item()


@pytest.mark.parametrize(("before", "after"), [(4, 3), (3, 4), (2, 2)])
def test_the_share_of_the_residual_outlives_a_change_of_size(before: int, after: int):
    residuals, _ = _owing(before, 8)
    assert _share(residuals) == pytest.approx(8 / before)
    residuals.begin(after)
    handle = FakeHandle()
    residuals.add(handle)  # type: ignore[arg-type]
    assert handle.owed["w"][0] == pytest.approx(8 * after / before)
    assert handle.steps == 7
    assert _share(residuals) == pytest.approx(8 / before)  # also before a commit
    residuals.take()
    assert _share(residuals) == pytest.approx(8 / before)


@pytest.mark.parametrize("adopts", [True, False])
def test_a_step_that_failed_here_counts_where_others_have_committed_it(adopts: bool):
    residuals, _ = _owing(2, 4)
    residuals.fail()
    if adopts:
        residuals.adopt([{"steps": 8, "scale": 1}])
    residuals.begin(3)
    assert _share(residuals) == pytest.approx((5 if adopts else 4) / 2)
    assert residuals.owed()[0]["steps"] == (8 if adopts else 7)


def test_who_leaves_hands_over_once():
    stays, _ = _owing(2, 4)
    leaves, _ = _owing(2, 6)
    for _ in range(2):  # twice, as if the answer was lost
        stays.receive_all({"one": leaves.hand_over()})
    assert _share(stays) == pytest.approx(4 / 2 + 6 / 2)
    third = Residuals()
    # "two" has received what "one" hands over, once more.
    third.receive_all({"one": leaves.hand_over(), "two": stays.hand_over()})
    third.receive_all({"one": leaves.hand_over()})
    assert _share(third) == pytest.approx(5)


def test_newcomers_have_no_residual_and_know_the_step():
    residuals, _ = _owing(2, 4)
    [given] = residuals.without_tensors()
    assert (given["steps"], given["residuals"]) == (7, {})


def _save_in_a_plain_group(folder: str) -> None:
    state, handle = elastic.State(), FakeHandle()
    state._residuals.add(handle)  # type: ignore[arg-type]
    handle.owed = {"w": torch.full((3,), 2.0 + 4 * dist.get_rank())}
    state.commit()
    where = state.save(folder)
    loaded = elastic.State()
    assert loaded.load(where)
    loaded._residuals.add(handle)  # type: ignore[arg-type]
    assert handle.owed["w"].tolist() == [4.0] * 3  # the mean, on each rank


def test_a_plain_group_saves_the_mean(pools, tmp_path: Path):
    pools(2).run(_save_in_a_plain_group, str(tmp_path))
