"""One compiler or test program runs per core, whatever OMP_NUM_THREADS is."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORES = len(os.sched_getaffinity(0))


def environment(**variables: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("MAX_JOBS", "OMP_NUM_THREADS")}
    return {**inherited, **variables}


def jobs(**variables: str) -> int:
    command = [ROOT / "tools" / "jobs.sh"]
    return int(subprocess.check_output(command, env=environment(**variables), text=True))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": str(CORES + 3)},
        {"OMP_THREAD_LIMIT": "1"},
        {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"},
    ],
)
def test_jobs_follow_the_cores(variables: dict[str, str]):
    assert jobs(**variables) == CORES


@pytest.mark.parametrize("threads", ["1", "4"])
def test_max_jobs_is_what_counts_where_it_is_set(threads: str):
    assert jobs(MAX_JOBS="7", OMP_NUM_THREADS=threads) == 7


def test_cores_that_the_process_may_not_use_do_not_count():
    one = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", one, ROOT / "tools" / "jobs.sh"]
    assert int(subprocess.check_output(command, env=environment(), text=True)) == 1


def scripts() -> list[Path]:
    return [ROOT / "Makefile", ROOT / ".ci" / "run", *sorted((ROOT / "tools").glob("*.sh"))]


@pytest.mark.parametrize("script", scripts(), ids=lambda path: path.name)
def test_every_script_asks_jobs_sh(script: Path):
    if script.name == "jobs.sh":
        return
    text = script.read_text()
    assert not re.search(r"\bnproc\b(?!-)", text), "asks nproc, which obeys OMP_NUM_THREADS"
    for line in text.splitlines():
        if "--parallel" in line:
            assert "tools/jobs.sh" in line
    assert "MAX_JOBS:-" not in text, "a default of its own"


def test_make_runs_the_tests_on_all_cores():
    """The Makefile sets OMP_NUM_THREADS=1 for the ranks, and its recipes run with that."""
    recipe = "include Makefile\nprint-jobs:\n\t@tools/jobs.sh\n"
    command = ["make", "--no-print-directory", "-C", ROOT, "-f", "-", "print-jobs"]
    printed = subprocess.check_output(command, input=recipe, env=environment(), text=True)
    assert int(printed) == CORES
