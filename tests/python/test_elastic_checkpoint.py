"""Files of State.save(), which run no code where they are loaded."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import IO, Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from torch_ringdist import elastic
from torch_ringdist.elastic import _checkpoint


class Canary:
    """Creates a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)

    def __deepcopy__(self, known: Any) -> Canary:
        return self


class Holder:
    """An entry with any value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def _state(trusts: bool = False, note: str = "", held: Any = None) -> elastic.State:
    weights = torch.arange(6.0)[:4]
    return elastic.State(
        weights=weights, note=note, epoch=3, holder=Holder(held), trust_members=trusts
    )


def test_a_file_has_tensors_and_text(tmp_path: Path):
    state = _state(note="as it was")
    file = Path(state.save(tmp_path)) / "state.pt"
    content = torch.load(file, weights_only=True)
    assert {type(one) for one in content.values()} == {str, list}
    assert content["tensors"][0].untyped_storage().nbytes() == 16, "only the part that is used"
    other = _state(held=1)
    other.weights = torch.zeros(4)
    assert other.load(tmp_path)
    assert other.holder.value is None
    assert torch.equal(other.weights, state.weights)
    assert (other.note, other.epoch) == ("as it was", 3)


def test_pickles_are_for_trusted_files(tmp_path: Path):
    canary = tmp_path / "canary"
    where = _state(trusts=True, held=Canary(canary)).save(tmp_path)
    refusal = r"state\.pt has test_elastic_checkpoint\.Canary.*trust_members=True"
    with pytest.raises(ValueError, match=refusal):
        _state().load(where)
    assert not canary.exists()
    assert _state(trusts=True).load(where) and canary.exists()


def test_another_file_is_not_unpickled(tmp_path: Path):
    canary = tmp_path / "canary"
    file = Path(_state().save(tmp_path)) / "state.pt"
    torch.save(Canary(canary), file)
    for trusts in (False, True):
        with pytest.raises(ValueError, match=r"state\.pt has .*trust_members=True"):
            _state(trusts).load(tmp_path)
    assert not canary.exists()


@pytest.mark.parametrize("what", ["tensors", "steps", "text", "half", "nothing"])
def test_a_damaged_file_changes_nothing(tmp_path: Path, what: str):
    file = Path(_state(note="saved").save(tmp_path)) / "state.pt"
    content = torch.load(file, weights_only=True)
    if what == "tensors":
        content["tensors"] = [torch.zeros(5)]
    elif what == "steps":
        content["ringdist"] = content["ringdist"].replace('"steps",0', '"steps",-1')
    elif what == "text":
        content["ringdist"] = content["ringdist"][:-3]
    torch.save(content, file)
    if what in ("half", "nothing"):
        os.truncate(file, file.stat().st_size // 2 if what == "half" else 0)
    state = _state()
    with pytest.raises(ValueError, match="is damaged"):
        state.load(tmp_path)
    assert state.note == ""


def test_a_lack_of_space_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state = _state(note="first")
    kept = Path(state.save(tmp_path))

    def fail(content: object, file: IO[bytes]) -> None:
        file.write(b"part of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", fail)
        with pytest.raises(RuntimeError, match="No space"):
            state.save(tmp_path)
    assert list(tmp_path.iterdir()) == [kept]
    assert Path(_state(note="second").save(tmp_path)) == kept
    assert list(tmp_path.iterdir()) == [kept]
    other = _state()
    other.load(tmp_path)
    assert other.note == "second"


def test_pickles_of_an_earlier_version_need_trust(tmp_path: Path):
    state = _state()
    saved = {
        "version": 1,
        "steps": 7,
        "terms": _checkpoint._terms(state),
        "parts": {**state._given(), "weights": _checkpoint.Key("tensor 0"), "note": "old"},
        "owed": [],
        "tensors": [("tensor 0", torch.Size([4]), torch.float32)],
    }
    content = {"ringdist": pickle.dumps(saved), "tensor 0": torch.full((4,), 2.0)}
    dcp.save(content, checkpoint_id=tmp_path / "step-000000007", no_dist=True)
    with pytest.raises(ValueError, match=r"earlier version.*trust_members=True"):
        state.load(tmp_path)
    trusting = _state(trusts=True)
    assert trusting.load(tmp_path)
    assert (trusting.steps, trusting.note, trusting.epoch) == (7, "old", 3)
    assert torch.equal(trusting.weights, torch.full((4,), 2.0))
