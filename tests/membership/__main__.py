"""Builds the program of `make membership-sim` with one bug at a time. Each bug must be detected.

    python -m tests.membership [--seconds 60] [--only WORDS]

Needs the build of `make membership-sim`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.membership.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = [
    ROOT / "build/release" / f"libringdist_{name}.a" for name in ("core", "transport", "base")
]
SOURCES = (
    "csrc/membership/paxos/*.cc",
    "tests/cpp/support/membership/*.cc",
    "tests/cpp/membership_sim.cc",
)


def build(mutation: Mutation, folder: Path) -> Path:
    """Builds the program with that bug. Compiles all sources that include the mutated file
    again."""
    for name in ("csrc", "tests/cpp"):
        shutil.copytree(ROOT / name, folder / name)
    path = folder / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        sys.exit(
            f"{mutation.file} does not have the text of '{mutation.name}' once: see mutations.py"
        )
    path.write_text(text.replace(mutation.old, mutation.new))
    unity = folder / "unity.cc"
    files = sorted(file for pattern in SOURCES for file in folder.glob(pattern))
    unity.write_text("".join(f'#include "{file}"\n' for file in files))
    program = folder / "membership_sim"
    compiler = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", f"-I{folder}/csrc"]
    sources = ["-iquote", f"{folder}/tests/cpp", str(unity)]
    libraries = ["-Wl,--start-group", *map(str, LIBRARIES), "-Wl,--end-group", "-lpthread", "-ldl"]
    subprocess.run([*compiler, *sources, *libraries, "-o", str(program)], check=True)
    return program


def attempt(mutation: Mutation, seconds: int) -> str:
    """Returns a description of how the bug was detected, or "" if it was not."""
    with tempfile.TemporaryDirectory() as temporary:
        program = build(mutation, Path(temporary))
        for arguments in (["--runs", "1000000"], ["--exhaustive", "--stride", "4"]):
            run = subprocess.run(
                [program, *arguments, "--seconds", str(seconds)],
                stdout=subprocess.PIPE,
                text=True,
                timeout=10 * seconds + 60,
            )
            if run.returncode:
                lines = run.stdout.splitlines()
                why = next(
                    (line for line in lines if line.startswith("FAILED")),
                    f"ended with {run.returncode}",
                )
                return f"{why}; {lines[-1] if lines else ''}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.membership", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--seconds",
        type=int,
        default=60,
        help="of random runs, and of exhaustive ones (%(default)s)",
    )
    parser.add_argument("--only", default="", help="only those whose names have these words")
    options = parser.parse_args()
    missing = [str(path) for path in LIBRARIES if not path.exists()]
    if missing:
        sys.exit(f"run `make membership-sim` first: there is no {missing[0]}")
    chosen = [one for one in MUTATIONS if options.only in one.name]
    unnoticed = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for mutation, how in zip(
            chosen, pool.map(lambda one: attempt(one, options.seconds), chosen), strict=True
        ):
            unnoticed += not how
            print(f"{mutation.name}: {how or 'NOT NOTICED'}", flush=True)
    return 1 if unnoticed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
