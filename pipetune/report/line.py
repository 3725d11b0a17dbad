"""A line of a report with its kind, by which the terminal and the page choose its colour or place. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a line is for."""

    HEADLINE = "headline"
    """The answer; a report has one."""
    CONTEXT = "context"
    """What the answer is compared with: the ceiling, PyTorch's default."""
    DETAIL = "detail"
    """What belongs to the answer: numbers, the cause, what could be changed."""
    UNCERTAINTY = "uncertainty"
    """Why another candidate may be the right answer, or is just as good."""
    WARNING = "warning"
    """What else happened in the run that the reader should know."""


class Line(NamedTuple):
    """One line or sentence of a report."""

    kind: Kind
    text: str


def headline(lines: Iterable[Line]) -> str:
    """The text of the headline; empty where there is none."""
    return next((line.text for line in lines if line.kind is Kind.HEADLINE), "")


def texts(lines: Iterable[Line]) -> list[str]:
    """The texts without their kinds, in the same order."""
    return [line.text for line in lines]
