"""Checks that these sources build and work with other versions of torch.

    python tools/check_torch_versions.py                     2.11.0, 2.14.1 and 2.15.0 in turn
    python tools/check_torch_versions.py --versions 2.12.1   another one
    python tools/check_torch_versions.py --stubs stubs.py    on a machine without CUDA's libraries

For each version it creates a virtual environment and installs that torch with the packages that its
import needs. It builds a copy of the sources against the headers. Then it runs 20 steps of the
digits demo, every operation (smoke.py) and checks of the flight recorder (smoke_flight_recorder.py)
on 2 ranks. Newcomers and losses (smoke_generations.py) run on 3 ranks. From 2.14 on, reconfigure()
(smoke_reconfigure.py) runs on 4 ranks. Finally it removes the environment (1.4 GB). It prints a
table, and exits with 1 if a version failed. Logs stay in the folder.

The wheels of most versions are for CUDA. On a machine without its libraries they can be imported
with stub libraries. The option --stubs names a Python script that is called with the folder of
torch's libraries and an empty folder, and creates the stubs in the latter.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ["2.11.0", "2.14.1", "2.15.0"]
# Packages that torch imports and that the build and the demo need, with the versions of
# requirements.txt.
PACKAGES = [
    *("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy"),
    *("setuptools", "wheel", "cmake", "ninja", "libucx-cu13", "scikit-learn", "tqdm"),
]
SOURCES = ["CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "setup.py"]
SOURCE_FOLDERS = ["cmake", "csrc", "torch_ringdist"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--versions", nargs="+", default=VERSIONS, metavar="X.Y.Z", help="of torch")
    add("--stubs", type=Path, metavar="SCRIPT", help="makes stand-ins for NVIDIA's libraries")
    add("--python", default=sys.executable, help="interpreter (default: the one that runs this)")
    add(
        "--folder",
        type=Path,
        default=ROOT / "build" / "torch_versions",
        help="for environments and logs (default: %(default)s)",
    )
    add("--keep", action="store_true", help="do not remove the environments")
    args = parser.parse_args()
    if args.stubs and not args.stubs.is_file():
        parser.error(f"--stubs: {args.stubs}: no such file")
    return args


class Failed(Exception):
    """A step did not succeed; the text is for the table."""


@dataclass
class Trial:
    """One version of torch, in a folder of its own."""

    version: str
    args: argparse.Namespace
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = (self.args.folder / self.version).resolve()
        self.log = self.folder.with_name(f"{self.version}.log")
        self.python = self.folder / "venv" / "bin" / "python"
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "RINGDIST_BUILD_DIR": str(self.folder / "build"),
        }
        # Otherwise packages of this environment would be found first.
        self.environment.pop("PYTHONPATH", None)

    def run(self) -> str:
        """Returns the outcome as text, "works" if all steps succeed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.log.write_text("")
        try:
            for step in (self.install, self.stub, self.build, self.demo, self.smoke):
                self._timed(step)
        except Failed as error:
            return str(error)
        finally:
            if not self.args.keep:
                shutil.rmtree(self.folder, ignore_errors=True)
        return "works"

    def install(self) -> None:
        self._call([self.args.python, "-m", "venv", str(self.folder / "venv")])
        pins = self.folder / "constraints.txt"
        lines = (ROOT / "requirements.txt").read_text().splitlines()
        pins.write_text("\n".join(line for line in lines if not line.startswith("torch==")) + "\n")
        self._pip("--no-deps", f"torch=={self.version}")
        self._pip("--constraint", str(pins), *PACKAGES)

    def stub(self) -> None:
        if self.args.stubs:
            out = self.folder / "stubs"
            out.mkdir()
            libraries = self._site_packages() / "torch" / "lib"
            self._call([str(self.python), str(self.args.stubs.resolve()), str(libraries), str(out)])
            self.environment["LD_LIBRARY_PATH"] = str(out)
        hint = "" if self.args.stubs else "; without NVIDIA's libraries it takes --stubs"
        self._call([str(self.python), "-c", "import torch"], f"torch cannot be imported{hint}")

    def build(self) -> None:
        """Builds a copy, because setuptools leaves files in the sources that disturb other
        builds."""
        copy = self.folder / "sources"
        copy.mkdir()
        for name in SOURCES:
            shutil.copy(ROOT / name, copy)
        built = shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__")
        for name in SOURCE_FOLDERS:
            shutil.copytree(ROOT / name, copy / name, ignore=built)
        self._pip("--no-build-isolation", "--no-deps", "--verbose", str(copy))

    def demo(self) -> None:
        checkpoint = f"--checkpoint={self.folder / 'digits.pt'}"
        self._torchrun(
            ROOT / "examples" / "ddp_digits.py", "--steps=20", "--no-progress", checkpoint
        )

    def smoke(self) -> None:
        self._torchrun(ROOT / "tools" / "smoke.py")
        self._torchrun(ROOT / "tools" / "smoke_flight_recorder.py")
        self._call([str(self.python), str(ROOT / "tools" / "smoke_generations.py")], limit=300)
        if tuple(int(part) for part in self.version.split(".")[:2]) >= (2, 14):
            self._call([str(self.python), str(ROOT / "tools" / "smoke_reconfigure.py")], limit=300)

    def _timed(self, step: Callable[[], None]) -> None:
        begin = time.monotonic()
        print(f"torch {self.version}: {step.__name__} ...", flush=True)
        step()
        self.seconds[step.__name__] = time.monotonic() - begin

    def _site_packages(self) -> Path:
        return next((self.folder / "venv" / "lib").glob("python*/site-packages"))

    def _pip(self, *words: str) -> None:
        self._call(
            [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", *words]
        )

    def _torchrun(self, script: Path, *words: str) -> None:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
        launch += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]  # any free port
        self._call([str(self.python), *launch, str(script), *words], limit=300)

    def _call(self, command: list[str], trouble: str = "", limit: float = 3600) -> None:
        """Runs a command and writes its output to the log. Raises Failed."""
        with self.log.open("a") as log:
            print(f"\n$ {' '.join(command)}", file=log, flush=True)
            try:
                done = subprocess.run(
                    command,
                    # Not in the checkout, because its torch_ringdist would be found first.
                    cwd=self.folder,
                    env=self.environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=limit,
                )
            except subprocess.TimeoutExpired:
                raise Failed(f"no end after {limit:.0f} s: {' '.join(command)}") from None
        if done.returncode != 0:
            raise Failed(trouble or f"status {done.returncode} of: {' '.join(command)}")


def main() -> int:
    args = parse_arguments()
    outcomes: dict[str, str] = {}
    for version in args.versions:
        trial = Trial(version, args)
        outcomes[version] = trial.run()
        spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in trial.seconds.items())
        print(f"torch {version}: {outcomes[version]} ({spent})", flush=True)
        if outcomes[version] != "works":
            tail = trial.log.read_text(errors="replace").splitlines()[-25:]
            print("\n".join(["  | " + line for line in tail]) + f"\n  all of it: {trial.log}")
    print("\ntried:")
    for version, outcome in outcomes.items():
        print(f"  torch {version:8} {outcome}")
    return 0 if set(outcomes.values()) == {"works"} else 1


if __name__ == "__main__":
    sys.exit(main())
