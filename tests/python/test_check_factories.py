"""tools/check_factories.py finds factories without a dtype or a device, and none in a good tree."""

from pathlib import Path

import pytest
from support.tree_check import run_check

GOOD = {
    "torch_ringdist/good.py": (
        "import torch\n"
        'a = torch.zeros(3, dtype=torch.float32, device="cpu")\n'
        'b = torch.Generator(device="cpu")\n'
        "c = torch.zeros_like(a), a.new_empty(2), torch.stack([a, a])\n"
    ),
    "csrc/torch/good.cc": (
        "a = at::empty({count}, like.options().memory_format(kContiguous));\n"
        "b = at::zeros({f(1)}, at::TensorOptions().dtype(at::kFloat).device(device));\n"
        "c = at::tensor(x, at::TensorOptions(at::kLong).device(at::kCPU));\n"
        "d = at::empty({n}, float_options(bucket)), at::empty_like(a);\n"
    ),
}


def check(root: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    return run_check("check_factories.py", root, files)


def test_a_tree_that_keeps_the_rules(tmp_path: Path):
    assert check(tmp_path, GOOD) == (0, [])


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (
            "torch_ringdist/a.py",
            "torch.zeros(3, dtype=torch.int32)",
            "zeros() must be given device",
        ),
        (
            "torch_ringdist/b/a.py",
            'torch.tensor([1], device="cpu")',
            "tensor() must be given dtype",
        ),
        ("torch_ringdist/a.py", "torch.Generator()", "Generator() must be given device"),
        ("torch_ringdist/a.py", "torch.LongTensor(3)", "LongTensor() follows torch's defaults"),
        ("csrc/torch/a.cc", "at::empty({3}, at::kFloat);", "at::empty() must be given options"),
        (
            "csrc/torch/a.h",
            "at::ones({f(3)}, at::TensorOptions(at::kFloat));",
            "at::ones() must be given options",
        ),
        (
            "csrc/bindings/a.cc",
            "at::zeros({3}, at::TensorOptions().device(device));",
            "at::zeros() must be given options",
        ),
    ],
)
def test_each_violation(tmp_path: Path, name: str, line: str, message: str):
    status, lines = check(tmp_path, {**GOOD, name: f"\n{line}\n"})
    assert status == 1
    (found,) = lines
    assert found.startswith(f"{name}:2: ") and message in found, found
