from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.answering.base import base_of
from pipetune.datasets.index import write_index
from pipetune.errors import UsageError
from pipetune.explaining.verdict import CORES, UNEVEN
from pipetune.predicting.model import rate_of
from pipetune.records.explanation import (
    ACCELERATOR,
    DECODE,
    FETCH,
    HAND_OVER,
    STORAGE,
    WITH_ACCELERATOR,
    Explanation,
    Part,
    StageCost,
)
from pipetune.records.sweep import Candidate, to_dict
from tests.run_folders import CEILING, DEFAULT, TUNED, sweep_folder
from tests.unit.answering.bases import base, images

PILLOW = Candidate(backend="pillow", num_workers=2, prefetch_depth=2, batch_size=64)


def part(name: str, rate: float, cpu: float | None, cores: float | None = 1.0) -> Part:
    return Part(
        name=name, samples_per_s=rate, rate_ci95=(0.9 * rate, 1.1 * rate), cpu_s_per_1000_samples=cpu, cpu_ci95=None,
        cores_used=cores, measurements=2,
    )  # fmt: skip


def parts(**changes: Part) -> tuple[Part, ...]:
    found = {
        ACCELERATOR: part(ACCELERATOR, 5000.0, 0.02), FETCH: part(FETCH, 980.0, 2.0),
        HAND_OVER: part(HAND_OVER, 30_000.0, 0.05, cores=0.9), WITH_ACCELERATOR: part(WITH_ACCELERATOR, 960.0, 2.0),
        STORAGE: part(STORAGE, 700.0, 0.1),
    }  # fmt: skip
    return tuple({**found, **changes}.values())


def explained(path: Path, *, cache: str = "warm", bound_by: str = CORES, **changes: Part) -> Path:
    path.mkdir(parents=True)
    cost = StageCost(stages=(DECODE,), cpu_s_per_1000_samples=2.0, ci95=(1.9, 2.1), samples_per_s=980.0,
                     rate_ci95=(900.0, 1000.0))  # fmt: skip
    found = Explanation(
        candidate=PILLOW, parts=parts(**changes), stages=(cost,), closes_frac=0.0, bound_by=bound_by,
        bound_stage=None, sentence="The cores.", evidence=(), remedies=(),
    )  # fmt: skip
    workload = {**to_dict(base().workload), "cache": cache}
    info: dict[str, Any] = {"kind": "explain", "workload": workload, "host": {"cores_usable": 2.0}, "of": None}
    (path / "run.json").write_text(json.dumps(info))
    (path / "result.json").write_text(json.dumps({"kind": "explain", "explanation": to_dict(found)}))
    write_index(str(path / "index.json"), images())
    return path


def with_workload(folder: Path, **changes: Any) -> Path:
    info = json.loads((folder / "run.json").read_text())
    info["workload"] = {**to_dict(base().workload), **info["workload"], **changes}
    (folder / "run.json").write_text(json.dumps(info))
    return folder


def test_of_an_explanation_the_model_gives_what_was_measured(tmp_path: Path) -> None:
    found = base_of(explained(tmp_path / "run"), None)
    assert rate_of(found.costs, found.setting) == pytest.approx(960, rel=0.01)
    assert found.costs.load_s == pytest.approx(0.002, rel=0.1)
    assert (found.cores, found.ranks, found.storage_per_s) == (2.0, 1, 700.0)
    assert found.images_in_all == 100
    assert found.costs.step_s == pytest.approx(0.00002)


def test_files_from_storage_count_where_they_were_judged_so(tmp_path: Path) -> None:
    assert base_of(explained(tmp_path / "warm"), None).setting.storage_per_s is None
    assert base_of(explained(tmp_path / "cold", cache="cold"), None).setting.storage_per_s == 700.0


def test_a_loader_that_comes_unevenly_does_not_decode_more_slowly(tmp_path: Path) -> None:
    slow = part(WITH_ACCELERATOR, 700.0, 2.0)
    even = base_of(explained(tmp_path / "even", **{WITH_ACCELERATOR: slow}), None)
    uneven = base_of(explained(tmp_path / "uneven", bound_by=UNEVEN, **{WITH_ACCELERATOR: slow}), None)
    assert even.costs.load_s > 1.2 * uneven.costs.load_s


def test_handing_over_is_a_limit_where_nothing_else_was(tmp_path: Path) -> None:
    idle, busy = part(HAND_OVER, 3000.0, 0.3, cores=0.9), part(HAND_OVER, 3000.0, 0.6, cores=1.9)
    assert base_of(explained(tmp_path / "idle", hand_over=idle), None).costs.hand_over_per_s == 3000
    assert base_of(explained(tmp_path / "busy", hand_over=busy), None).costs.hand_over_per_s is None
    slow = part(HAND_OVER, 1050.0, 0.3, cores=0.9)
    assert base_of(explained(tmp_path / "slow", hand_over=slow), None).costs.hand_over_per_s == 2 * 980
    bound = explained(tmp_path / "bound", bound_by="hand_over", hand_over=slow)
    assert base_of(bound, None).costs.hand_over_per_s == 1050


def test_of_a_sweep_the_recommended_candidate_is_taken_or_a_named_one(tmp_path: Path) -> None:
    folder = with_workload(sweep_folder(tmp_path / "run", (CEILING, DEFAULT, TUNED)))
    assert base_of(folder, None).candidate == TUNED.candidate
    assert base_of(folder, "default").candidate == DEFAULT.candidate
    found = base_of(folder, DEFAULT.candidate.key)
    assert rate_of(found.costs, found.setting) == pytest.approx(640, rel=0.03)
    with pytest.raises(UsageError, match="no measured candidate x"):
        base_of(folder, "x")


def test_a_sweep_without_cpu_times_cannot_be_asked(tmp_path: Path) -> None:
    unknown = replace(TUNED, measurement=replace(TUNED.measurement, cpu_s_per_1000_samples=None))  # type: ignore[type-var]
    folder = with_workload(sweep_folder(tmp_path / "run", (CEILING, unknown)))
    with pytest.raises(UsageError, match="not known"):
        base_of(folder, unknown.candidate.key)


def test_an_explanation_has_one_loader(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="explains one loader"):
        base_of(explained(tmp_path / "run"), "default")


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = explained(tmp_path / "run")
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "kind": "watch"}))
    with pytest.raises(UsageError, match="pipetune watch"):
        base_of(folder, None)
