"""Builds the native module with CMake and puts it into the package; the rest is in pyproject.toml.

The build reads these variables:

    RINGDIST_UCX=wheel|system   UCX to build against (CMakeLists.txt)
    RINGDIST_CUDA=ON            also build the library for NVIDIA GPUs, with nvcc
    RINGDIST_CUDA_ARCHITECTURES="90"    GPUs to build it for; "80 90 100" by default
    RINGDIST_WERROR=ON          treat warnings as errors
    RINGDIST_BUILD_DIR          folder to build in
    RINGDIST_RELEASE=ON         build a stripped wheel for distribution, for one minor version of
                                torch (tools/wheel.sh)
    MAX_JOBS                    number of parallel compilers; one per core by default
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.egg_info import egg_info

ROOT = Path(__file__).resolve().parent
PACKAGE = "torch_ringdist"
# Checked before setup(), because an older setuptools fails there with pages about pyproject.toml.
FLOOR = re.search(r'"setuptools>=(\d+)"', (ROOT / "pyproject.toml").read_text())[1]
if int(setuptools.__version__.split(".")[0]) < int(FLOOR):
    raise SystemExit(
        f"torch-ringdist needs setuptools {FLOOR} or newer to be built, and this is "
        f"{setuptools.__version__}: pip install -U setuptools"
    )
CUDA_LIBRARY = "libringdist_cuda.so"
TLS_LIBRARY = "libringdist_tls.so"  # built where OpenSSL's headers are
# `import torch` in a build step must not start the very package that is being built.
ENVIRONMENT = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def is_on(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in ("ON", "1", "TRUE", "YES")


def fetch(distribution: str, folder: Path) -> Path:
    """Downloads a build-time requirement that the environment lacks into the build folder.

    Without build isolation pip installs this package's requirements only after it was built.
    """
    if not folder.exists():
        print(f"torch-ringdist: {distribution} is not installed; fetching it for this build")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        try:
            subprocess.check_call([*command, "--target", str(folder), distribution])
        except (OSError, subprocess.CalledProcessError):
            shutil.rmtree(folder, ignore_errors=True)
            raise SystemExit(
                f"torch-ringdist needs {distribution} to be built: pip install {distribution}"
            ) from None
    return folder


class CMakeBuild(build_ext):
    """Builds with CMake. `pip install -e .` uses build/release like the Makefile, while `pip
    install .` uses a folder of its own."""

    def run(self) -> None:
        in_source = self.editable_mode or self.inplace
        build = ROOT / "build" / "release" if in_source else Path(self.build_temp).resolve()
        build = Path(os.environ.get("RINGDIST_BUILD_DIR") or build)
        cmake = self._cmake(build)
        subprocess.check_call([*cmake, *self._arguments(build, in_source)], env=ENVIRONMENT)
        jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
        package = (ROOT if in_source else Path(self.build_lib).resolve()) / PACKAGE
        make = ["--build", str(build), "--target", "python", "--parallel", jobs]
        subprocess.check_call([*cmake, *make], env=ENVIRONMENT)
        if not is_on("RINGDIST_CUDA"):  # removes the library of an earlier build
            (package / CUDA_LIBRARY).unlink(missing_ok=True)
        install = ["--install", str(build), "--component", "python", "--prefix", str(package)]
        install += ["--strip"] * is_on("RINGDIST_RELEASE")
        subprocess.check_call([*cmake, *install], env=ENVIRONMENT)

    def _cmake(self, build: Path) -> list[str]:
        """Returns the command that runs CMake. If CMake is not installed, downloads it."""
        # The tools of this Python environment precede those of the system.
        scripts = sysconfig.get_path("scripts")
        ENVIRONMENT["PATH"] = scripts + os.pathsep + ENVIRONMENT.get("PATH", os.defpath)
        cmake = shutil.which("cmake", path=ENVIRONMENT["PATH"])
        if cmake is None:
            tools = fetch("cmake", build / "fetched" / "cmake")
            cmake = str(tools / "cmake" / "data" / "bin" / "cmake")
        return [cmake]

    def _arguments(self, build: Path, in_source: bool) -> list[str]:
        arguments = [
            f"-S{ROOT}",
            f"-B{build}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DRINGDIST_DEVELOP={'ON' if in_source else 'OFF'}",
        ]
        has_ninja = shutil.which("ninja", path=ENVIRONMENT["PATH"]) is not None
        if has_ninja and not (build / "CMakeCache.txt").exists():
            arguments.append("-GNinja")
        if "RINGDIST_WERROR" in os.environ:
            arguments.append(f"-DRINGDIST_WERROR={os.environ['RINGDIST_WERROR']}")
        ucx = os.environ.get("RINGDIST_UCX") or "wheel"
        arguments.append(f"-DRINGDIST_UCX={ucx}")
        if ucx == "wheel" and importlib.util.find_spec("libucx") is None:
            wheel = fetch("libucx-cu13", build / "fetched" / "libucx")
            arguments.append(f"-DRINGDIST_UCX_WHEEL={wheel / 'libucx'}")
        return arguments

    def _files(self) -> list[str]:
        module = os.path.basename(self.get_ext_filename(f"{PACKAGE}._C"))
        names = [module, "libringdist_ucx.so", "_build_info.py"]
        names += [CUDA_LIBRARY] * is_on("RINGDIST_CUDA")
        package = ROOT if self.editable_mode or self.inplace else Path(self.build_lib)
        names += [TLS_LIBRARY] * (package / PACKAGE / TLS_LIBRARY).exists()
        return [f"{PACKAGE}/{name}" for name in names]

    def get_outputs(self) -> list[str]:
        return [f"{self.build_lib}/{name}" for name in self._files()]

    def get_output_mapping(self) -> dict[str, str]:
        return {f"{self.build_lib}/{name}": name for name in self._files()}


class Metadata(egg_info):
    """Metadata of the package. A wheel for distribution requires the minor version of torch that it
    was built with, and has it in its version."""

    def finalize_options(self) -> None:
        if is_on("RINGDIST_RELEASE"):
            minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
            self.tag_build = f"+torch{minor}"
            requirements = [
                f"torch=={minor}.*" if requirement.startswith("torch>") else requirement
                for requirement in self.distribution.install_requires
            ]
            self.distribution.install_requires = requirements
            self.distribution.metadata.install_requires = requirements
        super().finalize_options()


setup(
    # The module is listed so that setuptools makes a wheel for one platform. CMake has the sources.
    ext_modules=[Extension(f"{PACKAGE}._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "egg_info": Metadata},
)
