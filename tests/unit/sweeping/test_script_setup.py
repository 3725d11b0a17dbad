from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.machine.host import describe_host
from pipetune.records.script import LoaderIdentity, ScriptLoader
from pipetune.sweeping import script_setup
from pipetune.sweeping.options import SweepOptions
from pipetune.sweeping.script_setup import own_candidate, plan_script, prepare_script, uri_of

CHOSEN = SweepOptions(dataset="script:train.py", command=("python", "train.py"), seconds=3.0)
LOADER = ScriptLoader(
    identity=LoaderIdentity(
        file="/job/train.py", function="main", dataset="Images", sampler="RandomSampler", ordinal=0, position=(7, 4)
    ),
    where="/job/train.py:42", batch_size=16, cores=(4, 4),
    settings={"num_workers": 3, "prefetch_factor": 5, "pin_memory": False, "in_order": True, "start_method": None},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    host = replace(describe_host(), cores_usable=4.0)
    monkeypatch.setattr(script_setup, "describe_host", lambda: host)
    monkeypatch.setattr(script_setup, "visible_gpu_names", lambda environment: ("A GPU",))


def loader(workers: int = 3, **changes: Any) -> ScriptLoader:
    settings = {**LOADER.settings, "num_workers": workers, "prefetch_factor": 5 if workers else None}
    return replace(LOADER, **{"settings": settings, **changes})


def counts(one: ScriptLoader, **chosen: Any) -> tuple[int, ...]:
    return prepare_script(replace(CHOSEN, **chosen), one).space.workers


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"device": "cpu"}, "the script trains on cpu"), ({"device": "cuda", "ranks": 2}, "the script has 2 ranks")],
)
def test_utilisation_is_no_goal_where_one_gpu_does_not_tell_it(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=f"--target-metric nvml: {why}") as caught:
        prepare_script(replace(CHOSEN, target_metric="nvml"), loader(**changes))
    assert caught.value.hint == "use --target-metric goodput"


def test_the_scripts_own_settings_are_a_candidate() -> None:
    own = own_candidate(LOADER)
    assert (own.backend, own.loader, own.num_workers, own.prefetch_depth, own.batch_size) == (
        "script",
        "user",
        3,
        5,
        16,
    )
    space = prepare_script(CHOSEN, LOADER).space
    assert space.untuned == own
    assert 3 in space.workers
    assert set(space.prefetch) == {*CHOSEN.prefetch, 5}


def test_without_workers_there_is_no_depth_and_without_a_batch_size_there_is_one_sample() -> None:
    own = own_candidate(loader(0, batch_size=None))
    assert (own.num_workers, own.prefetch_depth, own.batch_size) == (0, 0, 1)
    assert set(prepare_script(CHOSEN, loader(0)).space.prefetch) == set(CHOSEN.prefetch)


def test_settings_besides_them_are_the_scripts_own() -> None:
    own = own_candidate(replace(LOADER, settings={**LOADER.settings, "pin_memory": True, "in_order": False}))
    assert own.pin_memory
    assert not own.in_order


def test_a_script_that_spawns_its_workers_is_that_candidate() -> None:
    own = own_candidate(replace(LOADER, settings={**LOADER.settings, "start_method": "spawn"}))
    assert own.start_method == "spawn"


def test_no_workers_are_tried_only_where_the_script_has_none_or_it_is_asked_for() -> None:
    assert 0 not in counts(loader(3))
    assert 0 in counts(loader(0))
    assert counts(loader(3), workers=(0, 1)) == (0, 1, 3)


def test_cores_are_shared_among_ranks() -> None:
    assert max(counts(loader(1))) > max(counts(loader(1, ranks=4)))


def test_the_scripts_own_number_above_the_limit_is_measured_and_not_recommended() -> None:
    over = prepare_script(replace(CHOSEN, max_workers=2), loader(3))
    assert over.space.workers == (1, 2)
    assert over.space.untuned is not None
    assert over.space.untuned.num_workers == 3
    assert "the script's own 3 workers are measured and not recommended: --max-workers is 2" in over.notes
    within = prepare_script(replace(CHOSEN, max_workers=3), loader(3))
    assert within.space.workers == (1, 2, 3)
    assert not any("--max-workers" in note for note in within.notes)
    assert counts(loader(3, shards=3, ranks=4), workers=(4,), max_workers=2) == (3,), "nothing else is left"
    with pytest.raises(UsageError, match="--max-workers 0") as caught:
        counts(loader(3), max_workers=0)
    assert caught.value.hint


def test_more_workers_that_would_draw_the_same_are_not_tried() -> None:
    prepared = prepare_script(CHOSEN, loader(1, own_generators=("rng",)))
    assert prepared.space.workers == (1,)
    assert any("rng" in note for note in prepared.notes)
    assert prepare_script(CHOSEN, loader(0, own_generators=("rng",))).space.workers == (0,)


def test_pillow_simd_is_tried_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace(CHOSEN, vary=("decoder",))
    monkeypatch.setattr(script_setup, "find_pillow_simd", lambda: None)
    monkeypatch.setattr(script_setup, "why_no_simd", lambda one, installed: "no reason")
    prepared = prepare_script(asked, LOADER)
    assert dict(prepared.space.settings)["decoder"] == ("own", "crop")
    assert "Pillow-SIMD was not tried: no reason" in prepared.notes
    assert not any("SIMD" in note for note in prepare_script(CHOSEN, LOADER).notes)
    fixed = prepare_script(replace(CHOSEN, fix=(("decoder", "simd"),)), LOADER)
    assert dict(fixed.space.settings)["decoder"] == ("own",)
    monkeypatch.setattr(script_setup, "why_no_simd", lambda one, installed: None)
    assert dict(prepare_script(asked, LOADER).space.settings)["decoder"] == ("own", "crop", "simd")


def test_more_workers_than_shards_are_not_tried() -> None:
    asked = replace(CHOSEN, workers=(1, 2, 3, 8))
    refused = prepare_script(asked, loader(5, shards=4, ranks=2))
    assert refused.space.workers == (1, 2, 5), "and the script's own number, which is its own affair"
    assert any("more than 2 workers" in note and "4 shards for 2 ranks" in note for note in refused.notes)
    assert prepare_script(asked, loader(0, shards=1)).space.workers == (0, 1)
    assert prepare_script(asked, loader(0, shards=8)).space.workers == (0, 1, 2, 3, 8)


def test_of_a_data_set_that_was_told_the_number_of_workers_no_other_is_tried() -> None:
    found = prepare_script(CHOSEN, loader(4, told_workers=("num_workers",)))
    assert found.space.workers == (4,)
    assert any("was told theirs (num_workers)" in note for note in found.notes)
    assert len(prepare_script(CHOSEN, loader(4)).space.workers) > 1


@pytest.mark.parametrize(("own", "tried"), [(0, (0, 1)), (1, (0, 1)), (2, (2,))])
def test_of_a_data_set_that_does_not_divide_itself_no_number_is_tried_that_repeats_samples(
    own: int, tried: tuple[int, ...]
) -> None:
    prepared = prepare_script(replace(CHOSEN, workers=(0, 1, 2, 4)), loader(own, undivided=True))
    assert prepared.space.workers == tried
    (note,) = (note for note in prepared.notes if "get_worker_info" in note)
    assert ("each sample 2 times" in note) is (own == 2)


def test_where_the_script_has_several_of_them_already_more_are() -> None:
    prepared = prepare_script(CHOSEN, loader(3, own_generators=("rng",)))
    assert max(prepared.space.workers) > 3
    assert not any("rng" in note for note in prepared.notes)


def test_batches_are_pinned_for_a_gpu_or_where_the_script_does() -> None:
    assert not prepare_script(CHOSEN, LOADER).space.pin_memory
    cuda = prepare_script(CHOSEN, loader(device="cuda", device_index=1, device_name="H100"))
    assert cuda.space.pin_memory
    assert (cuda.accelerator.kind, cuda.accelerator.name, cuda.accelerator.device_index) == ("cuda", "H100", 1)
    assert cuda.gpus == ("A GPU",)
    pinned = replace(LOADER, settings={**LOADER.settings, "pin_memory": True})
    assert prepare_script(CHOSEN, pinned).space.pin_memory


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, set()),
        ({"cores": (1, 4)}, {"worker_cores"}),
        ({"has_cv2": True}, {"opencv_threads"}),
        ({"cores": (0, 0)}, set()),
    ],
    ids=str,
)
def test_settings_are_tried_where_there_is_a_reason_to_gain(changes: dict[str, Any], names: set[str]) -> None:
    assert {name for name, _ in prepare_script(CHOSEN, loader(**changes)).space.settings} == names
    asked = replace(CHOSEN, vary=("in_order",))
    assert {name for name, _ in prepare_script(asked, loader(**changes)).space.settings} == {"in_order"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ranks": 2}, "2 ranks"), ({"others_trained": 1}, "2 loaders"), ({"cores": (1, 4)}, "began with 4 cores"),
        ({"identity": None}, "cannot be tuned by pipetune run"),
    ],
)  # fmt: skip
def test_what_is_special_about_the_script_is_noted(changes: dict[str, Any], expected: str) -> None:
    notes = prepare_script(CHOSEN, loader(**changes)).notes
    assert len(notes) == 1
    assert expected in notes[0]
    assert prepare_script(CHOSEN, LOADER).notes == ()


@pytest.mark.parametrize(
    ("chosen", "blocks"), [({}, None), ({"effort": "thorough"}, None), ({"blocks": 4}, 4), ({"blocks": 0}, 0)]
)
def test_the_plan_measures_in_the_script_and_confirms_it(chosen: dict[str, Any], blocks: int | None) -> None:
    options = replace(CHOSEN, **chosen)
    plan = plan_script(options, prepare_script(options, LOADER))
    assert plan.in_script
    assert plan.blocks == blocks
    assert plan.conditions.workload.seconds == 3.0
    assert plan.conditions.workload.accelerator.kind == "cpu"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("python", "-u", "src/train.py", "other.py"), "script:train.py"), (("torchrun", "-m", "pkg"), "script:pkg"),
        (("./run.sh",), "script:run.sh"), (("bash", "run.sh", "--data", "/data/train/"), "script:run.sh"),
        (("torchrun", "-m", "pkg.train", "--hf-token", "hf_abc123"), "script:pkg.train"),
        (("./train", "--lr", "0.1"), "script:train"), (("sh", "-c", "exec python train.py --key k"), "script:sh"),
        (("./train", "--config=a.py"), "script:train"),
    ],
)  # fmt: skip
def test_a_sweep_is_called_by_its_script(command: tuple[str, ...], expected: str) -> None:
    assert uri_of(command) == expected


def remedies(**changes: Any) -> dict[str, Any]:
    found = prepare_script(CHOSEN, loader(**{"batches": 40, **changes})).space.restart_remedies
    return dict(found)


def test_workers_that_live_on_are_a_remedy_where_the_training_stays_the_same() -> None:
    assert remedies() == {"keep_workers": (False, True)}
    assert remedies(batches=None) == {}, "how long an epoch is is not known"
    assert remedies(iterable=True) == {}
    assert remedies(renewed_with_epochs=("set_epoch",)) == {}
    assert remedies(own_generators=("rng",)) == {}
    assert remedies(switchable=False) == {}
    assert remedies(settings={**LOADER.settings, "persistent_workers": True}) == {}


def test_workers_that_are_spawned_may_be_forked_where_nothing_uses_cuda() -> None:
    spawned = {**LOADER.settings, "start_method": "spawn"}
    assert remedies(settings=spawned)["start_method"] == ("spawn", "fork")
    assert "start_method" not in remedies(settings=spawned, device="cuda")
    asked = replace(CHOSEN, vary=("start_method",))
    space = prepare_script(asked, loader(batches=40, settings=spawned)).space
    assert "start_method" not in dict(space.restart_remedies), "it is varied already"


def test_workers_that_live_on_are_refused_where_they_are_asked_for_as_well() -> None:
    asked = replace(CHOSEN, vary=("keep_workers",))
    assert dict(prepare_script(asked, loader(batches=40)).space.settings) == {"keep_workers": (False, True)}
    prepared = prepare_script(asked, loader(batches=40, renewed_with_epochs=("set_epoch",)))
    assert prepared.space.settings == ()
    assert any("would not hear" in note for note in prepared.notes)
