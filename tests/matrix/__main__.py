"""Run the Python tests with every algorithm forced, over every transport, and so on.

    python -m tests.matrix                      all tests in few configurations, in which any two
                                                values meet that do not in make test
    python -m tests.matrix --list               the configurations
    python -m tests.matrix --full               in all combinations of values
    python -m tests.matrix --sample 4m          as many tests and configurations, drawn at random,
                                                as that time allows
    python -m tests.matrix --only algorithm=direct,ring transport=ucx
    python -m tests.matrix --tests tests/python/test_reduce.py -- -k bf16

tests/matrix/axes.py is the table of the settings. A run continues where an earlier run of the same
build stopped (build/matrix). Tests marked alone are left out, because they depend on a rate, on
memory, or on the order of events. A test that asserts something about a setting's default is marked
(pytest.mark.default_of, tests/python/conftest.py), and is skipped where that setting is forced.
Each failure is printed with the command that repeats it, and the status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from tests.matrix.axes import (
    AXES,
    Configuration,
    command_environment,
    environment_of,
    every,
    pairwise,
    text_of,
    untouched,
)
from tests.matrix.results import FOLDER, ROOT, Result, Results

# Tests that no setting reaches, so one configuration is as good as another.
UNREACHED = {
    "test_bench_*.py": "that benchmarks run, and their arithmetic",
    "test_check_*.py": "tools",
    "test_cli*.py": "the command line, over made-up figures",
    "test_compress_settings.py": "no group",
    "test_conformance_runner.py": "a tool",
    "test_costs.py": "no group",
    "test_cuda_library.py": "no group",
    "test_demo.py": "how the examples are launched",
    "test_devices.py": "no group",
    "test_matrix.py": "this tool",
    "test_metadata.py": "the package",
    "test_options.py": "the settings themselves",
    "test_registration.py": "no group, or one operation",
    "test_ringdistrun.py": "a launcher",
}
# One pytest process per file, as in make test.
BESIDE = ("--dist", "loadfile", "--numprocesses")
SHARE = 30.0  # seconds of a sample for a configuration, at least; pytest takes 10 to start
SILENCE = 400.0  # seconds without output from pytest; its tests have their own limits
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Limits:
    """Limits of one configuration's run. A sample has both."""

    until: float | None = None
    seed: str | None = None


def seconds(text: str) -> float:
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 4m or 1h")
    return float(found[1]) * UNITS[found[2]]


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--full", action="store_true", help="all combinations, not only all pairs")
    add("--only", nargs="+", default=[], metavar="AXIS=VALUE,...", help="these values of an axis")
    add("--sample", type=seconds, metavar="TIME", help="stop after this time: 90s, 4m, 1h")
    add("--seed", help="of the sample; another one for each build by default")
    add("--tests", nargs="+", type=Path, metavar="FILE", help="instead of all of tests/python")
    add("--list", action="store_true", help="only say what would run")
    add("--fresh", action="store_true", help="run again what an earlier run knows")
    add("--out", type=Path, default=FOLDER, help="folder of results (build/matrix)")
    add("pytest", nargs="*", metavar="-- ARGUMENT", help="for pytest: -- -k reduce")
    options = parser.parse_args(words)
    options.out = options.out.resolve()
    try:
        options.values = restrict({axis.name: axis.values() for axis in AXES}, options.only)
    except ValueError as error:
        parser.error(str(error))
    for file in options.tests or []:
        if not file.exists():
            parser.error(f"--tests: {file}: no such file")
        if ROOT not in file.resolve().parents:  # pytest would not name its tests
            parser.error(f"--tests: {file}: expected a file below {ROOT}")
    return options


def restrict(values: dict[str, list[str]], only: list[str]) -> dict[str, list[str]]:
    """Restricts the values of settings to the chosen ones. `default` means that a setting is not
    forced."""
    out = dict(values)
    for words in only:
        name, _, chosen = words.partition("=")
        if name not in values:
            raise ValueError(f"--only: {name!r}: expected one of {', '.join(values)}")
        picked = ["" if one == "default" else one for one in chosen.split(",")]
        if unknown := [one for one in picked if one not in values[name]]:
            have = ", ".join(value or "default" for value in values[name])
            raise ValueError(f"--only: {name}={unknown[0]}: expected one of {have}")
        out[name] = picked
    return out


def files_to_run(options: argparse.Namespace) -> list[str]:
    chosen = options.tests or [
        file
        for file in sorted((ROOT / "tests" / "python").glob("test_*.py"))
        if not any(fnmatch.fnmatch(file.name, pattern) for pattern in UNREACHED)
    ]
    return [os.path.relpath(file, ROOT) for file in chosen]


def jobs() -> str:
    return subprocess.run(
        [ROOT / "tools" / "jobs.sh"], capture_output=True, text=True, check=True
    ).stdout.strip()


class Run:
    """The tests of one configuration, in one pytest process."""

    def __init__(self, configuration: Configuration, results: Results, limits: Limits):
        self._configuration = configuration
        self._results = results
        self._limits = limits

    def run(self, files: list[str], more: list[str], bar: tqdm) -> None:
        with tempfile.TemporaryDirectory() as folder:
            known = Path(folder) / "known"
            known.write_text("\n".join(self._results.known()))
            log = Path(folder) / "log"
            command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml"]
            command += ["-m", "not alone", "-p", "tests.matrix.record"]
            command += ["--record", str(self._results.path), "--known", str(known)]
            if self._limits.seed is None:
                command += [*BESIDE, jobs()]
            else:  # in the order drawn
                command += ["--sample-seed", self._limits.seed, "--until", str(self._limits.until)]
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*command, *more, *files],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=ROOT,
                    env=command_environment(self._configuration),
                    start_new_session=True,
                )
                reason = self._watch(process, bar)
            self._results.end_what_has_begun(reason)
            # 0 and 1 mean that all tests ran, 2 a timeout, and 5 nothing left to run.
            if process.returncode not in (0, 1, 2, 5):
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                bar.write(f"{text_of(self._configuration)}: {reason}\n{tail}")

    def _watch(self, process: subprocess.Popen, bar: tqdm) -> str:
        """Waits until the process ends, or kills it if it prints nothing. Returns the reason."""
        before = len(self._results.entries())
        done, heard = 0, time.monotonic()
        try:
            while process.poll() is None:
                time.sleep(0.2)
                new = self._results.entries()[before:]
                if self._limits.until is None and bar.total is None:
                    bar.total = next((e["collected"] for e in new if "collected" in e), None)
                ended = [Result(**entry) for entry in new if "test" in entry]
                for result in ended[done:]:
                    heard = time.monotonic()
                    bar.update()
                    if result.outcome == "failed":
                        bar.write(f"{text_of(self._configuration)}: {result.test}: {result.reason}")
                done = len(ended)
                if time.monotonic() - heard > SILENCE:
                    return f"pytest said nothing for {SILENCE:.0f} s"
            return f"pytest ended with status {process.returncode}"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_all(options: argparse.Namespace, chosen: list[Configuration]) -> list[Results]:
    files, out, began = files_to_run(options), [], time.time()
    for number, configuration in enumerate(chosen):
        results = Results(options.out, configuration)
        out.append(results)
        if options.fresh:
            results.forget()
        limits = Limits()
        if options.sample is not None:
            left = began + options.sample - time.time()
            limits = Limits(time.time() + left / (len(chosen) - number), f"{options.seed}/{number}")
        with tqdm(desc=text_of(configuration), unit="test", total=None) as bar:
            Run(configuration, results, limits).run(files, options.pytest, bar)
    return out


def draw(options: argparse.Namespace, chosen: list[Configuration]) -> list[Configuration]:
    """Returns the configurations that the sample has time for, and prints the seed."""
    options.seed = options.seed or Results(options.out, chosen[0]).path.parent.name
    print(f"seed {options.seed}")
    count = min(len(chosen), max(1, int(options.sample / SHARE)))
    return random.Random(options.seed).sample(chosen, count)


def repeat_command(configuration: Configuration, test: str) -> str:
    setting = [f"{name}={value}" for name, value in environment_of(configuration).items()]
    return " ".join([*setting, ".venv/bin/python -m pytest", shlex.quote(test)])


def report(chosen: list[Configuration], found: list[Results]) -> bool:
    """Prints the report. Returns true if nothing failed and something ran."""
    failures: list[tuple[Configuration, Result]] = []
    total: Counter[str] = Counter()
    for configuration, results in zip(chosen, found, strict=True):
        known = list(results.known().values())
        counts = Counter(result.outcome for result in known)
        total += counts
        failures += [(configuration, result) for result in known if result.outcome == "failed"]
        numbers = [f"{counts[outcome]:5} {outcome}" for outcome in ("passed", "skipped", "failed")]
        print(f"{text_of(configuration):60}{''.join(numbers)}")
    for configuration, result in failures:
        print(f"\nFAILED ({text_of(configuration)}): {result.reason}")
        print("  " + repeat_command(configuration, result.test))
    print(f"\n{total['passed']} passed, {total['skipped']} skipped, {total['failed']} failed")
    return not failures and total["passed"] > 0


def main(words: list[str]) -> int:
    options = parse_arguments(words)
    chosen = every(options.values) if options.full else pairwise(options.values, [untouched()])
    chosen = chosen or every(options.values)  # the configuration of make test was requested
    if options.list:
        print("\n".join(text_of(configuration) for configuration in chosen))
        return 0
    if options.sample is not None:
        chosen = draw(options, chosen)
    return 0 if report(chosen, run_all(options, chosen)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
