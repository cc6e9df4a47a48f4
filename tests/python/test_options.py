"""torch_ringdist.Options: typed, printed, validated. The fields come from the native module."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle

import fake_native
import pytest
import torch.distributed as dist

import torch_ringdist
from torch_ringdist import _native, _options


@pytest.fixture(autouse=True)
def native(monkeypatch, request: pytest.FixtureRequest):
    if not request.node.name.startswith("test_built_"):
        fake_native.install(monkeypatch)


def test_nothing_is_set_at_first():
    options = torch_ringdist.Options()
    assert options.algorithm is None
    assert options.as_text() == {}
    assert repr(options) == "Options()"


@pytest.mark.check
def test_fields_are_set_and_unset():
    options = torch_ringdist.Options(algorithm="ring", peer_timeout=3)
    options.trace = False
    options.peer_timeout = None
    assert options.as_text() == {"algorithm": "ring", "trace": "false"}
    assert repr(options) == "Options(algorithm='ring', trace=False)"


def test_print_lists_every_field_with_its_meaning():
    lines = str(torch_ringdist.Options(segment_bytes=4096)).splitlines()
    assert len(lines) == 1 + len(fake_native.OPTIONS)
    segment = next(line for line in lines if "segment_bytes" in line)
    assert segment.split()[1:3] == ["4096", "int"]
    assert segment.endswith("the unit of pipelining (default: 258048)")
    assert "not set" in lines[1]


def test_unknown_field_lists_the_fields():
    expected = "no field 'algoritm'; have: algorithm, peer_timeout, segment_bytes, trace"
    with pytest.raises(TypeError, match=expected):
        torch_ringdist.Options(algoritm="ring")
    options = torch_ringdist.Options()
    with pytest.raises(AttributeError, match=expected):
        options.algoritm = "ring"
    with pytest.raises(AttributeError, match=expected):
        options.algoritm  # noqa: B018


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("algorithm", 3, "str"),
        ("segment_bytes", "64k", "int"),
        ("segment_bytes", 4096.0, "int"),
        ("segment_bytes", True, "int"),
        ("peer_timeout", "10", "float"),
        ("peer_timeout", False, "float"),
        ("trace", 1, "bool"),
    ],
)
def test_wrong_type_names_field_value_and_accepted(name: str, value: object, accepted: str):
    with pytest.raises(TypeError, match=rf"Options\.{name}: expected {accepted} or None") as caught:
        torch_ringdist.Options(**{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("peer_timeout", float("nan")), ("segment_bytes", 2**63), ("algorithm", "ri\0ng")],
)
@pytest.mark.check
def test_impossible_value_is_a_value_error(name: str, value: object):
    options = torch_ringdist.Options()
    with pytest.raises(ValueError, match=rf"Options\.{name}: expected .*, got "):
        setattr(options, name, value)
    assert options == torch_ringdist.Options()


def test_equality_and_copies():
    options = torch_ringdist.Options(algorithm="ring", trace=True)
    for twin in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert twin == options
        twin.trace = None
        assert twin != options
    assert options != {"algorithm": "ring", "trace": True}
    with pytest.raises(TypeError, match="unhashable"):
        hash(options)


def test_fields_are_offered_for_completion():
    assert {name for name, *_ in fake_native.OPTIONS} <= set(dir(torch_ringdist.Options()))


def test_they_are_a_dataclass_that_describes_itself():
    options = dataclasses.replace(torch_ringdist.Options(trace=True), algorithm="ring")
    assert options == torch_ringdist.Options(algorithm="ring", trace=True)
    names = [name for name, *_ in fake_native.OPTIONS]
    parameters = inspect.signature(torch_ringdist.Options).parameters
    assert list(parameters) == names
    assert str(parameters["peer_timeout"]) == "peer_timeout: float | None = None"
    assert all(name in torch_ringdist.Options.__doc__ for name in names)
    with pytest.raises(TypeError, match="expected str or None"):
        dataclasses.replace(options, algorithm=1)


def test_built_module_lists_fields_that_can_be_set():
    values = {"str": "x", "int": 65536, "float": 2.5, "bool": True}
    fields = torch_ringdist._native.load().options()
    assert {"algorithm", "segment_bytes", "peer_timeout"} <= {name for name, *_ in fields}
    options = torch_ringdist.Options(**{name: values[kind] for name, kind, *_ in fields})
    assert len(options.as_text()) == len(fields)


@pytest.mark.parametrize(
    ("name", "value"), [("segment_bytes", 5), ("deterministic", "maybe"), ("peer_timeout", -1.0)]
)
def test_built_module_refuses_a_value_at_group_creation(name: str, value: object):
    options = torch_ringdist.Options(**{name: value})
    with pytest.raises(ValueError, match=f"{name}.*accepted") as caught:
        dist.init_process_group(
            "ringdist", store=dist.HashStore(), rank=0, world_size=1, pg_options=options
        )
    assert str(value).rstrip("0").rstrip(".") in str(caught.value)
    assert not dist.is_initialized()


def test_built_fields_are_those_that_type_checkers_see():
    """The types must match, so that Options(algoritm=...) is an error to a type checker."""
    tree = ast.parse(inspect.getsource(_options))
    [block] = [part for part in tree.body if isinstance(part, ast.If)]
    [seen] = [part for part in block.body if isinstance(part, ast.ClassDef)]
    fields = [part for part in seen.body if isinstance(part, ast.AnnAssign)]
    assert [(field.target.id, ast.unparse(field.annotation)) for field in fields] == [
        (name, f"{kind} | None") for name, kind, _, _ in _native.load().options()
    ]
    # A __getattr__ of the package would make type checkers accept every name.
    tops = ast.parse(inspect.getsource(torch_ringdist)).body
    assert "__getattr__" not in [getattr(part, "name", "") for part in tops]
