"""tools/check_includes.py finds each kind of violation, and none in a good tree."""

from pathlib import Path

import pytest
from support.tree_check import run_check

TABLE = """\
# Map

| folder | what it is | may include |
|---|---|---|
| `base/` | words | std only |
| `codec/` | bytes | base |
| `transport/` | links | base |
| `engine/` | work | all above |
| `torch/` | edge | engine, base |
| `bindings/` | Python | torch, base |
"""

GOOD = {
    "csrc/README.md": TABLE,
    "csrc/base/error.h": "#include <string>\n",
    "csrc/codec/codec.h": '#include "base/error.h"\n',
    "csrc/transport/transport.h": '#include "base/error.h"\n',
    "csrc/transport/local/local_transport.h": '#include "transport/transport.h"\n',
    "csrc/transport/registry.cc": '#include "transport/local/local_transport.h"\n',
    "csrc/transport/ucx/ucx.cc": '#include <ucp/api/ucp.h>\n\n#include "base/error.h"\n',
    "csrc/engine/engine.h": '#include "codec/codec.h"\n#include "transport/transport.h"\n',
    "csrc/torch/backend.h": '#include <c10/core/Device.h>\n\n#include "engine/engine.h"\n',
    "csrc/bindings/module.cc": '#include <pybind11/pybind11.h>\n\n#include "torch/backend.h"\n',
    "tools/tool.py": "pass\n",
}


def check(root: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    return run_check("check_includes.py", root, files)


def test_a_tree_that_keeps_the_rules(tmp_path):
    assert check(tmp_path, GOOD) == (0, [])


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("csrc/base/a.cc", '#include "codec/codec.h"', "base/ may include nothing of ours"),
        ("csrc/codec/a.cc", '#include "transport/transport.h"', "codec/ may include base"),
        ("csrc/bindings/a.cc", '#  include "engine/engine.h"', "bindings/ may include base, torch"),
        (
            "csrc/transport/ucx/a.h",
            '#include "transport/local/local_transport.h"',
            "never includes its sibling",
        ),
        ("csrc/codec/a.cc", '#include "codec.h"', "not a file of csrc/"),
        ("csrc/engine/a.cc", "#include <torch/torch.h>", "torch belongs to csrc/torch"),
        ("csrc/engine/a.cc", '#include "c10/core/Device.h"', "torch belongs to csrc/torch"),
        ("csrc/base/a.h", "#include <ATen/ATen.h>", "torch belongs to csrc/torch"),
        ("csrc/torch/a.cc", "#include <pybind11/pybind11.h>", "pybind11 belongs to csrc/bindings"),
        ("csrc/torch/a.cc", "#include <torch/csrc/utils/pybind.h>", "pybind11 belongs to"),
        ("csrc/transport/a.cc", "#include <ucp/api/ucp.h>", "UCX belongs to csrc/transport/ucx"),
    ],
)
def test_an_edge_that_is_not_allowed(tmp_path, name, line, message):
    code, output = check(tmp_path, {**GOOD, name: f"// a comment\n{line}\n"})
    assert code == 1
    assert len(output) == 1
    assert output[0].startswith(f"{name}:2: ")
    assert message in output[0]


def test_a_folder_that_the_table_does_not_have(tmp_path):
    code, output = check(tmp_path, {**GOOD, "csrc/extra/a.h": "", "csrc/extra/b.h": ""})
    assert (code, len(output)) == (1, 1)
    assert "csrc/extra/a.h:1: folder extra/ is not in the table" in output[0]


def test_no_table(tmp_path):
    code, output = check(tmp_path, {**GOOD, "csrc/README.md": "# Map\n"})
    assert code == 1
    assert "no table" in output[0]


@pytest.mark.parametrize("name", ["csrc/base/long.h", "tools/long.py", "tests/python/long.py"])
def test_a_file_that_is_too_long(tmp_path, name):
    assert check(tmp_path, {**GOOD, name: "\n" * 400}) == (0, [])
    code, output = check(tmp_path, {**GOOD, name: "\n" * 401})
    assert (code, output) == (1, [f"{name}:401: more than 400 lines; split it"])


@pytest.mark.parametrize(
    ("use", "header"),
    [
        ("std::vector<int> a;", "vector"),
        ("std::stoi(a);", "string"),
        ("uint64_t a;", "cstdint"),
        ("std::ranges::find(a, 1);", "algorithm"),
        ("const auto a = std::memory_order_relaxed;", "atomic"),
    ],
)
@pytest.mark.parametrize("folder", ["csrc/codec", "tests/cpp/codec"])
def test_a_name_of_std_without_its_header(tmp_path, folder, use, header):
    name = f"{folder}/a.cc"
    code, output = check(tmp_path, {**GOOD, name: f"// {use}\n{use}\n"})
    assert (code, len(output)) == (1, 1)
    assert output[0].startswith(f"{name}:2: ") and output[0].endswith(f"#include <{header}>")
    own = {"csrc/codec/own.h": f"#include <{header}>\n"}
    assert check(tmp_path, {**GOOD, **own, name: f'#include "codec/own.h"\n{use}\n'}) == (0, [])


def test_headers_that_include_each_other(tmp_path):
    circle = {
        "csrc/base/a.h": '#include "base/b.h"\n',
        "csrc/base/b.h": '#include "base/a.h"\n#include <vector>\nstd::vector<int> a;\n',
    }
    code, output = check(tmp_path, {**GOOD, **circle})
    assert (code, output) == (1, ["csrc/base/a:1: includes itself by way of base/a, base/b"])


def test_modules_that_import_each_other(tmp_path):
    circle = {
        "torch_ringdist/a.py": "from torch_ringdist.b import name\n",
        "torch_ringdist/b.py": "from torch_ringdist import a\n",
    }
    code, output = check(tmp_path, {**GOOD, **circle})
    message = "imports itself by way of torch_ringdist.a, torch_ringdist.b"
    assert (code, output) == (1, [f"torch_ringdist/a.py:1: {message}"])
    late = "def use():\n    from torch_ringdist import a\n"
    assert check(tmp_path, {**GOOD, **circle, "torch_ringdist/b.py": late}) == (0, [])


NESTED = {
    **GOOD,
    "csrc/README.md": TABLE
    + "| `engine/op/` | one op | base |\n| `engine/group/` | all | engine/op |\n",
    "csrc/engine/op/op_execution.h": '#include "base/error.h"\n',
    "csrc/engine/group/group.h": '#include "engine/op/op_execution.h"\n',
}


def test_a_nested_room_is_a_room(tmp_path):
    assert check(tmp_path, NESTED) == (0, [])
    backward = {"csrc/engine/op/a.cc": '#include "engine/group/group.h"\n'}
    code, output = check(tmp_path, {**NESTED, **backward})
    assert (code, len(output)) == (1, 1)
    assert "engine/op/ may include base" in output[0]


@pytest.mark.parametrize("name", ["csrc/engine/a.h", "csrc/torch/a.h"])
def test_a_nested_room_is_not_the_one_around_it(tmp_path, name):
    code, output = check(tmp_path, {**NESTED, name: '#include "engine/op/op_execution.h"\n'})
    assert (code, len(output)) == (1, 1)
    assert '"engine/op/op_execution.h": ' in output[0]


def test_a_circle_of_a_header_and_a_source(tmp_path):
    circle = {
        "csrc/codec/a.h": "",
        "csrc/codec/a.cc": '#include "codec/a.h"\n#include "codec/b.h"\n',
        "csrc/codec/b.h": '#include "codec/a.h"\n',
    }
    code, output = check(tmp_path, {**GOOD, **circle})
    assert (code, output) == (1, ["csrc/codec/a:1: includes itself by way of codec/a, codec/b"])


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("tests/cpp/codec/a_test.cc", '#include "base/error.h"\n', True),
        ("tests/cpp/codec/a_test.cc", '#include "transport/transport.h"\n', False),
        ("tests/cpp/codec/a_test.cc", '#include "support/all.h"\n', False),
        ("tests/cpp/engine/a_test.cc", '#include "support/all.h"\n', True),
    ],
)
def test_tests_of_a_room_fake_what_is_above_it(tmp_path, name, text, right):
    support = {"tests/cpp/support/all.h": '#include "engine/engine.h"\n'}
    status, output = check(tmp_path, GOOD | support | {name: text})
    assert status == (0 if right else 1), output
    assert right or "its tests fake that" in output[0]
