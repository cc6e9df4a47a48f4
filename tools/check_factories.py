"""Checks that every tensor that the project creates names its dtype and its device.

A factory without them follows torch.set_default_dtype() and torch.set_default_device(), which the
script controls. An internal tensor would then be on another device, or its dtype would differ
between ranks.

Usage: `check_factories.py [ROOT]`. It prints `FILE:LINE: MESSAGE` per violation and exits with 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = (
    "arange|as_tensor|asarray|empty|empty_permuted|empty_strided|eye|from_blob|full|linspace|"
    "logspace|normal|ones|rand|randint|randn|randperm|range|scalar_tensor|sparse_coo_tensor|"
    "sparse_csr_tensor|tensor|zeros"
)
# Legacy constructors. Their device or dtype is a default that no argument changes.
OLD = re.compile(r"(?:Byte|Char|Short|Int|Long|Half|BFloat16|Float|Double|Bool)?Tensor")
NATIVE = re.compile(rf"\b(?:at|torch)::({NAMES})\(")


# Yields line and text of factory calls without dtype or device in Python code.
def in_python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, given = node.func.attr, {keyword.arg for keyword in node.keywords}
        if not isinstance(node.func.value, ast.Name) or node.func.value.id != "torch":
            continue
        if OLD.fullmatch(name):
            yield node.lineno, f"torch.{name}() follows torch's defaults; use torch.empty()"
        needed = {"dtype", "device"} if re.fullmatch(NAMES, name) else set()
        needed |= {"device"} if name == "Generator" else set()
        for missing in sorted(needed - given):
            yield node.lineno, f"torch.{name}() must be given {missing}="


# Yields line and text of factory calls without dtype or device in C++ code.
def in_cpp(text: str) -> Iterator[tuple[int, str]]:
    for match in NATIVE.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        given = text[match.end() : end]
        if re.search(r"options\b", given):  # options of another tensor, or a value with both
            continue
        if not re.search(r"\.device\(", given) or not re.search(r"dtype|\bk[A-Z]\w+", given):
            line = text.count("\n", 0, match.start()) + 1
            yield line, f"at::{match[1]}() must be given options with a dtype and a device"


def main(root: Path) -> int:
    found = [
        f"{file.relative_to(root)}:{line}: {message}"
        for folder, suffixes, check in (
            ("torch_ringdist", (".py",), in_python),
            ("csrc", (".cc", ".h"), in_cpp),
        )
        for file in sorted((root / folder).rglob("*"))
        if file.suffix in suffixes
        for line, message in check(file.read_text())
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent))
