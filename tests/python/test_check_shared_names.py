"""tools/check_shared_names.py finds equal names in two files of one build target."""

from pathlib import Path

import pytest
from support.tree_check import run_check


def file_of(lines: str) -> str:
    return f"namespace a {{\nnamespace {{\n\n{lines}\n\n}}  // namespace\n}}  // namespace a\n"


GOOD = {
    "tests/cpp/one/a_test.cc": file_of(
        "constexpr int kOne = 1;\nint f(int a) {\n  int kTwo = 1;\n}"
    ),
    "tests/cpp/one/deep/b_test.cc": file_of("constexpr int kTwo = 2;\nint f(float a) {\n}"),
    "tests/cpp/two/a_test.cc": file_of("constexpr int kOne = 1;"),
    "csrc/engine/a.cc": file_of("class Thing {\n};"),
    "csrc/codec/a.cc": file_of("class Thing {\n};"),
}


def check(root: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    return run_check("check_shared_names.py", root, files)


def test_a_tree_without(tmp_path):
    assert check(tmp_path, GOOD) == (0, [])


@pytest.mark.parametrize(
    ("file", "line", "name"),
    [
        ("tests/cpp/one/c_test.cc", "constexpr size_t kOne = 5;  // of these", "kOne"),
        ("tests/cpp/one/c_test.cc", "constexpr double kTwo[] = {1, 2};", "kTwo"),
        ("tests/cpp/one/c_test.cc", "int f(int b) {", "f(int)"),
        ("csrc/plan/b.cc", "struct Thing final : Other {", "Thing"),
    ],
)
def test_each_kind_of_name(tmp_path, file, line, name):
    status, output = check(tmp_path, GOOD | {file: file_of(line)})
    assert status == 1
    assert len(output) == 1
    assert f": {name} is in " in output[0]
