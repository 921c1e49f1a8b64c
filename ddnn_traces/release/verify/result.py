"""A line of what verify found."""

from __future__ import annotations

from dataclasses import dataclass

PASSED, FAILED, FLAGGED, NOT_CHECKED = "passed", "failed", "flagged", "not checked"


@dataclass(frozen=True)
class Result:
    """A line: the check, what it looked at, passed, failed, flagged or not checked, and what was found.

    The detail of a failure says what is wrong and what to do next. flagged: a data check fails, as the release says.
    """

    check: str
    subject: str
    status: str
    detail: str


class WrongError(Exception):
    """What a check found wrong, where nothing more can be looked at."""
