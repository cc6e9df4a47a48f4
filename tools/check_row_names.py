"""Checks that an entry of a registry is named in its own file only.

An algorithm, codec, transport or compression method is one file and one row. Other code that tests
for its name would have to be changed with the row. So a string literal of csrc/ or torch_ringdist/
must not be the name of a row. Exceptions are the row itself, files with that name (codec/int4.cc,
transport/shm/...), and EXCEPTIONS. Comments and docstrings are free.

Usage: `check_row_names.py [ROOT]`. It prints `FILE:LINE: MESSAGE` per violation and exits with 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Places of row names: a pattern of files, and a pattern of the name in them.
ROWS = [
    ("csrc/algorithm/*.cc", re.compile(r'\.name = "(\w+)"')),
    ("csrc/codec/registry.cc", re.compile(r"CodecRow (\w+)_row\(\)")),
    ("csrc/transport/registry.cc", re.compile(r'\.name = "(\w+)"')),
    ("csrc/compress/*_method.cc", re.compile(r'kName = "(\w+)"')),
]

# Maps (file, name) to the reason for the exception.
EXCEPTIONS = {
    ("csrc/base/config.cc", "ucx"): "the option of that name",
    ("csrc/base/dtype.cc", "int8"): "a dtype",
    ("csrc/base/dtype.cc", "none"): "no reduce op",
    ("csrc/bindings/bind_info.cc", "ucx"): "the key of info() of that name",
    ("csrc/bindings/bind_local.cc", "local"): "ranks of a study are threads",
    ("csrc/bindings/bind_local.cc", "direct"): "what studies compare codecs over",
    ("csrc/compress/auto_codec.cc", "none"): 'what "auto" chooses from, a policy',
    ("csrc/compress/auto_codec.cc", "bf16"): "the same",
    ("csrc/compress/auto_codec.cc", "int8"): "the same",
    ("csrc/compress/auto_codec.cc", "int4"): "the same",
    ("csrc/compress/codec_method.cc", "none"): "an example for tests",
    ("csrc/compress/codec_method.cc", "int8"): "an example for tests",
    ("csrc/os/network_interfaces.cc", "none"): "the word, where a list is empty",
    ("torch_ringdist/_bench_case.py", "int8"): "a dtype",
    ("torch_ringdist/_settings.py", "int4"): "the default of compress() and CompressState",
    ("csrc/codec/parse.cc", "powersgd"): "says where that is accepted: it is no codec",
    ("csrc/transport/ucx/ucx_worker.cc", "tcp"): "the value of UCX_TLS",
    ("torch_ringdist/_rendezvous.py", "tcp"): "the scheme of a URL, and a file of /proc/net",
    ("csrc/torch/process_context.cc", "ucx"): "the option of that name",
    ("torch_ringdist/_inspect.py", "ucx"): "the key of info() of that name",
    ("torch_ringdist/_doctor_host.py", "ucx"): "that key, and what connects hosts by default",
    ("torch_ringdist/_doctor_host.py", "tcp"): "what connects hosts where there is a key",
    ("torch_ringdist/_doctor_host.py", "shm"): "what connects the ranks of a host, and needs memfd",
    ("torch_ringdist/_info_text.py", "ucx"): "the key of info() of that name",
    ("torch_ringdist/_units.py", "none"): "the word, where a list is empty",
    ("torch_ringdist/_rules.py", "int8"): "what rules give embeddings",
    ("torch_ringdist/fsdp.py", "int8"): "the default of compress()",
    ("torch_ringdist/_tune_hosts.py", "shm"): "whose messages are timed, inside a host",
    ("torch_ringdist/_tune_rank.py", "ucx"): "the same, between hosts",
    ("torch_ringdist/_tune_rank.py", "tcp"): "the same, with a key or where the variable names it",
    ("torch_ringdist/_tune_rank.py", "one_shot"): "in which one message is waited for",
    ("torch_ringdist/_tune_rank.py", "ring"): "in which two are, on two ranks",
}

# Skips comments and finds string literals. A character literal is not a string.
CPP_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])+'|\"((?:\\.|[^\"\\\n])*)\"", re.DOTALL
)


def read_names(root: Path) -> dict[str, Path]:
    """Returns the names of all rows and the file of each."""
    return {
        name: file.relative_to(root)
        for files, pattern in ROWS
        for file in root.glob(files)
        for name in pattern.findall(file.read_text())
    }


def cpp_literals(text: str) -> Iterator[tuple[int, str]]:
    for token in CPP_TOKEN.finditer(text):
        before = text[text.rfind("\n", 0, token.start()) + 1 : token.start()]
        if token.group(1) is not None and "#include" not in before:
            yield text.count("\n", 0, token.start()) + 1, token.group(1)


def python_literals(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def is_its_own(file: Path, name: str) -> bool:
    """Returns True if the file, or a folder of it, is named like the row."""
    return file.stem == name or name in file.parts


def find_violations(root: Path) -> Iterator[str]:
    names = read_names(root)
    if not names:
        yield "csrc:1: no row of a registry was found"
    used: set[tuple[str, str]] = set()
    files = [*sorted((root / "csrc").rglob("*.h")), *sorted((root / "csrc").rglob("*.cc"))]
    for file in [*files, *sorted((root / "torch_ringdist").glob("*.py"))]:
        path = file.relative_to(root)
        literals = python_literals if file.suffix == ".py" else cpp_literals
        for line, literal in literals(file.read_text()):
            if literal not in names or path == names[literal] or is_its_own(path, literal):
                continue
            if (path.as_posix(), literal) in EXCEPTIONS:
                used.add((path.as_posix(), literal))
                continue
            yield f'{path}:{line}: "{literal}" is a row\'s name; ask its registry, or say why here'
    if root == ROOT:
        for file, name in sorted(EXCEPTIONS.keys() - used):
            yield f'tools/check_row_names.py:1: "{name}" is no longer in {file}'


def main(arguments: list[str]) -> int:
    violations = list(find_violations(Path(arguments[0]) if arguments else ROOT))
    print("\n".join(violations), end="\n" if violations else "")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
