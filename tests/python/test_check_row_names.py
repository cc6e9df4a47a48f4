"""tools/check_row_names.py finds names of rows wherever code depends on them."""

from pathlib import Path

import pytest
from support.tree_check import run_check

GOOD = {
    "csrc/algorithm/star.cc": 'return {.name = "star", .description = "a star"};\n',
    "csrc/algorithm/registry.cc": "Algorithm star_algorithm();\n",
    "csrc/codec/registry.cc": "CodecRow int3_row();\n",
    "csrc/codec/int3.cc": 'return {"int3", 9};\n',
    "csrc/transport/registry.cc": '    {.name = "wire",\n     .description = "a wire"},\n',
    "csrc/transport/wire/wire.h": 'return "wire";\n',
    "csrc/compress/half_method.cc": 'constexpr std::string_view kName = "half";\n',
    "csrc/plan/plan.cc": '// not "star"\nauto x = "star:2"; char c = \'"\'; /* "int3" */\n',
    "torch_ringdist/ddp.py": '"""Takes "int3"."""\nx = f("int3:4")\n',
}


def check(root: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    return run_check("check_row_names.py", root, files)


def test_a_tree_that_names_no_rows(tmp_path):
    assert check(tmp_path, GOOD) == (0, [])


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("csrc/plan/plan.cc", 'if (name == "star") {}', "star"),
        ("csrc/codec/parse.cc", 'f("a", "int3");', "int3"),
        ("csrc/engine/a.h", '#include "wire"\nauto x = "wire";', "wire"),
        ("csrc/torch/a.cc", 'auto x = "half";', "half"),
        ("torch_ringdist/fsdp.py", "if codec == 'int3': pass", "int3"),
    ],
)
def test_each_kind_of_row(tmp_path, file, text, name):
    line = text.count("\n") + 1
    status, output = check(tmp_path, GOOD | {file: text + "\n"})
    assert status == 1
    assert len(output) == 1
    assert output[0].startswith(f'{file}:{line}: "{name}" is a row')


def test_registries_must_be_found(tmp_path):
    status, output = check(tmp_path, {"csrc/plan/plan.cc": "\n"})
    assert status == 1
    assert "no row" in output[0]
