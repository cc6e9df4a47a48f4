"""ddp.compress() and CompressState accept the same settings, with the same messages."""

from __future__ import annotations

import inspect

import pytest

from torch_ringdist import CompressState, ddp

SETTINGS = {
    "codec": "int4",
    "rules": None,
    "warmup_steps": 0,
    "schedule": None,
    "error_feedback": None,
    "scaler": None,
    "guard": None,
    "measure_every": 10,
}


def _defaults(function) -> dict[str, object]:
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def test_their_signatures():
    assert _defaults(ddp.compress) == {"model": inspect.Parameter.empty, **SETTINGS}
    assert _defaults(CompressState) == {**SETTINGS, "model": None, "process_group": None}
    parameters = inspect.signature(CompressState).parameters.values()
    positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional == ["codec"]


@pytest.mark.parametrize("function", [ddp.compress, CompressState.__init__])
def test_their_documentation(function):
    described = inspect.getdoc(function).partition("Args:")[2].partition("Raises:")[0]
    for name in inspect.signature(function).parameters:
        assert name == "self" or f"\n    {name}: " in described, name
    assert "{settings}" not in described


def test_what_is_no_setting():
    with pytest.raises(TypeError, match=r"^compress\(\) got an unexpected keyword argument 'rule'"):
        ddp.compress(None, rule={})
    with pytest.raises(TypeError, match=r"CompressState.*unexpected keyword argument 'rule'"):
        CompressState(rule={})
    with pytest.raises(TypeError, match="positional"):
        CompressState("int4", None)
