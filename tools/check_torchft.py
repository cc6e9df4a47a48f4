"""Checks that torchft works over ringdist, with this checkout's build and torch.

    python tools/check_torchft.py                                    0.2.0, then the nightly
    python tools/check_torchft.py --packages torchft==0.2.0
    python tools/check_torchft.py --python build/torch_versions/2.15.0/venv/bin/python

For each package it installs the package and its dependencies except torch into a folder beside the
environment. Then it runs tests/python/test_torchft.py with it. The status is 1 if a test failed.
With --python the tests run in another environment, with its torch and torch_ringdist.
check_torch_versions.py --keep leaves such environments (LD_LIBRARY_PATH: its folder stubs, if it
created some).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["torchft==0.2.0", "torchft-nightly==2026.10.26"]
# Packages that torchft imports, except torch; they install the others.
NEEDED = ["opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk", "requests"]
TEST = "tests/python/test_torchft.py"
# Packages for running the tests in another environment.
RUNNERS = ["pytest", "pytest-timeout", "hypothesis"]
FOLDERS = ["benchmarks", "examples", "tests", "tools"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--packages", nargs="+", default=PACKAGES, metavar="NAME==VERSION")
    add("--python", type=Path, metavar="PROGRAM", help="of another environment")
    add("--folder", type=Path, default=ROOT / "build" / "torchft", help="default: %(default)s")
    return parser.parse_args()


# Installs packages into the folder.
def install(folder: Path, *packages: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(folder), *packages], check=True)


def copy_without_package(folder: Path) -> Path:
    """Copies the tests to a place where the installed torch_ringdist is found, not that of a
    checkout."""
    copy = folder / "checkout"
    shutil.rmtree(copy, ignore_errors=True)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


# Runs the tests with a version of torchft; returns True if they pass.
def check(package: str, folder: Path, python: Path | None) -> bool:
    if not folder.exists():
        install(folder, "--no-deps", package)
        install(folder, "--upgrade", *NEEDED, *RUNNERS)
    print(f"---- {package}", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    test = subprocess.run(
        [python or sys.executable, "-m", "pytest", "-q", TEST],
        cwd=copy_without_package(folder) if python else ROOT,
        env=environment,
        check=False,
    )
    return test.returncode == 0


def main() -> int:
    args = parse_arguments()
    # Not resolved, because a virtual environment's python is a link to one outside of it.
    python = args.python.absolute() if args.python else None
    good = [check(name, args.folder.resolve() / name, python) for name in args.packages]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
