"""Runs of examples/elastic_digits.py, and checks of them."""

from __future__ import annotations

from pathlib import Path

from support.launched import Course, Launched, committed, digits, read

EPOCHS, SHORT = 20, 5


def script_of(folder: Path, *more: str, epochs: int = SHORT) -> list[str]:
    usual = [f"--log={folder / 'steps'}", f"--epochs={epochs}", "--pause=0.05"]
    return [*digits.SCRIPT, *usual, *more]


def course_of(folder: Path, losses: list[float], epochs: int = SHORT) -> Course:
    """Returns the training and checks that it has no problems."""
    course = Course(read(folder / "steps"))
    course.check_epochs(digits.IMAGES, epochs)
    course.check_losses(losses[: epochs * digits.STEPS_OF_EPOCH], digits.TOLERANCE)
    assert not course.problems, "\n".join(course.problems)
    return course


def newest_trained(folder: Path) -> tuple[int, int]:
    """Returns number and size of the newest generation that committed a step, or (-1, 0) before the
    first. A rank that was stopped may write its earlier steps late."""
    found = ((one.generation, one.size) for one in committed(folder / "steps"))
    return max(found, default=(-1, 0))


def last_size(folder: Path) -> int:
    return newest_trained(folder)[1]


def trained(job: Launched, folder: Path, size: int, after: int = -1) -> dict[int, int]:
    """Waits until `size` ranks have trained a step together, in a generation later than `after`.
    Returns their process ids by rank.

    Only the newest generation counts, so the size must last until the test has seen it.
    """

    def is_reached() -> bool:
        generation, now = newest_trained(folder)
        return generation > after and now == size

    job.wait_for(is_reached)
    return job.members()
