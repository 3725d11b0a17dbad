"""Figures of a :class:`pipetune.runs.run.Run`; matplotlib draws them (``pip install 'pipetune[notebook]'``).

Each function takes ``ax=`` and returns it; without one it makes a figure of its own::

    run = pipetune.load("pipetune-runs/20260131-184500-imagenet")
    pipetune.plot.stall_timeline(run, "default")
    pipetune.plot.rate_by_workers(run)
    pipetune.plot.step_parts(run)
    pipetune.plot.compared(run, other_run)
    pipetune.plot.losses(pipetune.load("watch.jsonl"))
    pipetune.plot.waterfall(pipetune.explain(run))
    pipetune.plot.answers(pipetune.whatif(run, cores=[4, 8]))
    pipetune.plot.scaling(pipetune.scale(run, other_run))

Colours are Okabe and Ito's, which the colour-blind can tell apart, and shades differ enough in grey for a printer.
"""

from pipetune.plot.answers import answers
from pipetune.plot.candidates import compared, rate_by_workers, step_parts
from pipetune.plot.losses import losses
from pipetune.plot.scaling import accuracy, scaling
from pipetune.plot.timeline import stall_timeline, timeline_title
from pipetune.plot.waterfall import waterfall

__all__ = [
    "accuracy",
    "answers",
    "compared",
    "losses",
    "rate_by_workers",
    "scaling",
    "stall_timeline",
    "step_parts",
    "timeline_title",
    "waterfall",
]
