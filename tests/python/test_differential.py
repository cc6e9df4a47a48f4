"""`make differential`: it finds errors, minimizes them, and reports those that do not repeat."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.differential import __main__ as command  # noqa: E402
from tests.differential import values  # noqa: E402
from tests.differential.execute import execute  # noqa: E402
from tests.differential.plan import Plan, Region, Step  # noqa: E402
from tests.differential.runner import Checker, Ranks  # noqa: E402

pytestmark = pytest.mark.tools


@pytest.fixture
def seed() -> int:
    number = random.randrange(1 << 30)
    print(f"seed {number}")
    return number


class Fake:
    """Fake ranks that fail if a plan has both a scatter and a reduction, at most `times` times."""

    failures = 0

    def __init__(self, times: int | None = None) -> None:
        self.times = times

    def run(self, plan: Plan) -> str:
        ops = {step.op for step in plan.flat()}
        if self.times is not None and Fake.failures >= self.times:
            return ""
        if {"scatter", "reduce"} <= ops:
            Fake.failures += 1
            return "rank 1: wrong"
        return ""

    def close(self) -> None:
        pass


def test_a_failure_is_made_small(seed: int):
    Fake.failures = 0
    checker = Checker(Fake)
    found = command.search(checker, 500, seed)
    assert found is not None, "no sequence had both"
    plan, problem = found
    assert problem == "rank 1: wrong" and not checker.unrepeated
    assert sorted(step.op for step in plan.flat()) == ["reduce", "scatter"], str(plan)


def test_what_fails_once_is_reported_too(seed: int, tmp_path: Path, monkeypatch, capsys):
    Fake.failures = 0
    monkeypatch.setattr(command, "Checker", lambda _: Checker(lambda: Fake(times=1)))
    monkeypatch.setattr(
        sys, "argv", ["differential", "--sequences=300", f"--seed={seed}", f"--out={tmp_path}"]
    )
    assert command.main() == 1
    printed = capsys.readouterr().out
    assert f"seed {seed}: 1 sequence failed" in printed and "but not alone" in printed
    [file] = tmp_path.iterdir()
    assert {"scatter", "reduce"} <= {s.op for s in Plan.from_json(file.read_text()).flat()}


def test_plans_survive_json():
    inner = Step("send_recv", (2, 0), root=1, peer=0, shape=(), lag=2)
    plan = Plan((Step("barrier"), Region("batch", (inner, inner), lag=1)), seed=5)
    assert Plan.from_json(plan.to_json()) == plan
    assert "batch, waited for 1 steps later of" in str(plan)


@pytest.mark.parametrize("layout", values.LAYOUTS)
def test_boxes_see_wrong_elements_and_writes_beside(layout: str):
    for name, dtype in values.DTYPES.items():
        content = values.moved(name, (3, 4), values.noise(1))
        box = values.Box.of(content, layout)
        assert not box.differs(content), (name, box.differs(content))
        other = content.clone()
        values.bits(other).view(torch.uint8)[1, 0] ^= 1
        assert "element 4" in box.differs(other), name
        if layout in ("offset", "strided"):
            box.memory.view(torch.uint8).reshape(-1)[0] = 1
            assert "beside" in box.differs(content), (name, dtype)


def test_a_short_run(seed: int):
    """Runs everything with real ranks."""
    checker = Checker(Ranks)
    try:
        found = command.search(checker, 25, seed)
    finally:
        checker.close()
    assert found is None, f"{found[0]}\n{found[1]}"
    assert not checker.unrepeated, checker.unrepeated


def _one_gives_another(text: str, other: str) -> None:
    """Gives rank 1 the values of another seed, so that all ranks get an unexpected sum."""
    execute(other if dist.get_rank() == 1 else text)


def test_a_wrong_result_is_seen(fresh_pool):
    one, other = (Plan((Step("all_reduce", shape=(50,)),), seed=i).to_json() for i in (1, 2))
    with pytest.raises(AssertionError, match=r"step 0: tensor: element .* has bits"):
        fresh_pool(3).run(_one_gives_another, one, other)
