"""Runs of examples/elastic_digits.py."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.launched import EXAMPLES, Launched
from tests.chaos.records import Course, read

IMAGES = 1437
STEPS_OF_EPOCH = 15  # with 96 images each
TOLERANCE = 1e-6  # for losses; the example computes in fp64
SCRIPT = [str(EXAMPLES / "elastic_digits.py"), "--no-progress"]
_LIMIT = 600.0


def undisturbed(folder: Path, epochs: int) -> list[float]:
    """Returns the losses of one rank that trains alone without faults."""
    script = [*SCRIPT, f"--log={folder / 'steps'}", f"--epochs={epochs}"]
    with Launched(folder, ["--nproc-per-node=1"], script) as job:
        if job.end(_LIMIT) != 0:
            raise AssertionError(job.output())
    course = Course(read(folder / "steps"))
    course.check_epochs(IMAGES, epochs)
    if course.problems:
        raise AssertionError("\n".join(course.problems))
    return [one.loss for one in course.steps]
