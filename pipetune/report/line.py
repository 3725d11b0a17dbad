"""A line of a report with its kind, by which faces choose a colour or a place; they never look at its words. Pure."""

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
    """Why another answer may be right, or is just as good."""
    WARNING = "warning"
    """What happened on the way that the reader should know."""


class Line(NamedTuple):
    """One line or sentence of a report."""

    kind: Kind
    text: str


def headline(lines: Iterable[Line]) -> str:
    """The text of the headline; empty where there is none."""
    return next((line.text for line in lines if line.kind is Kind.HEADLINE), "")


def texts(lines: Iterable[Line]) -> list[str]:
    """The words alone, in the same order."""
    return [line.text for line in lines]
