"""Runs of examples/elastic_digits.py, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

from support.launched import EXAMPLES, Course, Launched, read

IMAGES = 1437
STEPS_OF_EPOCH = 15  # of 96 images
EPOCHS, SHORT = 20, 5
TOLERANCE = 1e-6  # the example computes in fp64
_SCRIPT = str(EXAMPLES / "elastic_digits.py")


def undisturbed(folder: Path) -> list[float]:
    """The losses of a run of one rank in which nothing happens."""
    script = [_SCRIPT, "--no-progress", f"--log={folder / 'steps'}", f"--epochs={EPOCHS}"]
    with Launched(folder, ["--nproc-per-node=1"], script) as job:
        assert job.end() == 0, job.output()
    course = Course(read(folder / "steps"))
    course.check_epochs(IMAGES, EPOCHS)
    assert not course.problems, course.problems
    return [one.loss for one in course.steps]


def script_of(folder: Path, *more: str, epochs: int = SHORT) -> list[str]:
    usual = ["--no-progress", f"--log={folder / 'steps'}", f"--epochs={epochs}", "--pause=0.05"]
    return [_SCRIPT, *usual, *more]


def course_of(folder: Path, losses: list[float], epochs: int = SHORT) -> Course:
    """What was trained; nothing is wrong with it."""
    course = Course(read(folder / "steps"))
    course.check_epochs(IMAGES, epochs)
    course.check_losses(losses[: epochs * STEPS_OF_EPOCH], TOLERANCE)
    assert not course.problems, "\n".join(course.problems)
    return course


def last_size(folder: Path) -> int:
    """Of the group that committed a step last; 0 before the first."""
    committed = [one for one in read(folder / "steps") if one.what == "committed"]
    return committed[-1].size if committed else 0


def trained(job: Launched, folder: Path, size: int) -> dict[int, int]:
    """Once so many ranks have trained a step together; their process ids by rank."""
    job.wait_for(lambda: last_size(folder) == size)
    return job.members()
