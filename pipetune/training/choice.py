"""What ``pipetune.open_loader`` is given: a candidate, or the run that recommends one and says how it was measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.augmentation.recipes import BASIC, RECIPES
from pipetune.datasets.synthetic_uri import SCHEME
from pipetune.errors import UsageError
from pipetune.records.sweep import Candidate
from pipetune.registry import OWN, SCRIPT, find_backend
from pipetune.runs.load import load
from pipetune.runs.run import Run


def choose_candidate(choice: Candidate | Run | str | Path) -> tuple[Candidate, dict[str, Any]]:
    """The candidate that is to be opened, and the workload that it was measured with.

    Raises:
        UsageError: a run recommends none, or one that cannot be opened.
    """
    if isinstance(choice, Candidate):
        return choice, {}
    run = choice if isinstance(choice, Run) else load(choice)
    outcome = next((o for o in reversed(run.outcomes) if o.candidate.key == run.recommended_key), None)
    if outcome is None:
        raise UsageError(f"{run.path} recommends no candidate", hint="give open_loader a Candidate")
    known = run.info.get("workload")
    if outcome.candidate.backend == OWN.name:
        raise UsageError(
            f"{run.path} tuned a loader of your own", hint="make it with the settings that the sweep recommends"
        )
    if outcome.candidate.backend == SCRIPT.name:
        raise UsageError(f"{run.path} tuned a script", hint=f"train with: pipetune run --tuned {run.path} -- COMMAND")
    if not isinstance(known, dict):
        return outcome.candidate, {}
    dataset = str(known.get("dataset", ""))
    if dataset and not dataset.startswith(SCHEME):
        # Relative to the folder in which the sweep was started.
        dataset = os.path.join(str(run.info.get("cwd", "")), os.path.expanduser(dataset))
    return _decoding_where_measured(outcome.candidate, known), {**known, "dataset": dataset or None, **_bad_images(run)}


def _bad_images(run: Run) -> dict[str, Any]:
    """The folder of the run's images, and the paths of those that a decoder could not decode."""
    stored = run.result.get("dataset")
    root, paths = (stored.get(name) for name in ("root", "undecodable")) if isinstance(stored, dict) else (None, None)
    if not isinstance(root, str) or not isinstance(paths, list):
        return {}
    return {"root": root, "undecodable": [path for path in paths if isinstance(path, str)]}


def choose_recipe(augment: str | None, known: Mapping[str, Any]) -> str:
    """What is done to each image.

    Raises:
        UsageError: there is no such recipe.
    """
    recipe = str(known.get("augment", BASIC)) if augment is None else augment
    if recipe not in RECIPES:
        raise UsageError(f"unknown augment {recipe!r}", hint=f"choose {', '.join(RECIPES)}")
    return recipe


def _decoding_where_measured(candidate: Candidate, known: Mapping[str, Any]) -> Candidate:
    """The candidate with DALI on the CPU if that is where it decoded."""
    kind = (known.get("accelerator") or {}).get("kind", "cuda")
    on_cpu = find_backend(candidate.backend).on_cpu
    return candidate if kind == "cuda" or on_cpu is None else replace(candidate, backend=on_cpu)
