"""What a drawn figure shows, for the tests of figures."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.text import Text


def texts(ax: Axes) -> list[str]:
    """Everything that is written on it and on its panels."""
    ax.figure.draw_without_rendering()
    return [text.get_text() for text in ax.findobj(Text) if text.get_text()]


def panels(ax: Axes) -> list[Axes]:
    """The panels of a timeline, from the top."""
    return list(ax.child_axes)
