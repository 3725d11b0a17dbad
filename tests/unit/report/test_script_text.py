from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.records.script import LoaderIdentity, ScriptLoader, ScriptOption, ScriptSummary, SettingOrigin, SourceCall
from pipetune.records.sweep import Candidate
from pipetune.records.written import WrittenFiles
from pipetune.report.script_text import (
    changes_of,
    command_with_option,
    script_notes,
    setting_line,
    to_do,
    training_command,
)
from tests.unit.sweeping.test_result import CEILING, DEFAULT, TUNED, sweep_result

LOADER = ScriptLoader(
    identity=LoaderIdentity(
        file="/job/train.py", function="main", dataset="Images", sampler="RandomSampler", ordinal=0, position=(7, 4)
    ),
    where="/job/train.py:42",
    written={"num_workers": "args.workers", "batch_size": "args.batch"},
    settings={
        "num_workers": 4, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False, "in_order": True,
        "start_method": None, "batch_size": 16,
    },
)  # fmt: skip
OPTION = ScriptOption(words=("--workers", "-j"), program="/job/train.py")
SUMMARY = ScriptSummary(
    command=("python", "train.py", "--workers", "4", "--lr", "1"), cwd="/job", loader=LOADER, option=OPTION
)
OWN = Candidate(backend="script", num_workers=4, prefetch_depth=2, batch_size=16, loader="user")


def with_settings(**settings: Any) -> ScriptLoader:
    return replace(LOADER, settings={**LOADER.settings, **settings})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"num_workers": 7}, {"num_workers": (4, 7)}),
        ({"prefetch_depth": 8, "pin_memory": True}, {"prefetch_factor": (2, 8), "pin_memory": (False, True)}),
        ({"num_workers": 0, "prefetch_depth": 0}, {"num_workers": (4, 0), "prefetch_factor": (2, None)}),
        ({"in_order": False}, {"in_order": (True, False)}),
        ({"start_method": "spawn"}, {"multiprocessing_context": (None, "spawn")}),
        ({"batch_size": 99}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_what_differs_is_told_with_both_values(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert changes_of(LOADER, replace(OWN, **changes)) == expected


def test_workers_that_live_on_have_to_go_with_the_last_worker() -> None:
    loader = with_settings(persistent_workers=True)
    assert "persistent_workers" not in changes_of(loader, replace(OWN, num_workers=2))
    without = changes_of(loader, replace(OWN, num_workers=0, prefetch_depth=0))
    assert without["persistent_workers"] == (True, False)


def test_the_start_method_is_written_where_it_is_another_one() -> None:
    assert changes_of(with_settings(start_method="spawn"), OWN) == {"multiprocessing_context": ("spawn", "fork")}
    assert changes_of(with_settings(start_method="spawn"), replace(OWN, start_method="spawn")) == {}


def test_the_line_names_the_place_the_values_and_the_expression() -> None:
    line = setting_line(SUMMARY, replace(OWN, num_workers=7, prefetch_depth=4))
    assert line.startswith("train.py:42: ")
    assert "num_workers 4 -> 7 (written as args.workers, the option --workers)" in line
    assert "prefetch_factor 2 -> 4" in line


def test_a_value_that_is_written_as_it_is_is_not_repeated() -> None:
    summary = replace(SUMMARY, loader=replace(LOADER, written={"num_workers": "4"}))
    assert "written" not in setting_line(summary, replace(OWN, num_workers=7))


@pytest.mark.parametrize(
    ("where", "cwd", "expected"),
    [
        ("/job/src/train.py:3", "/job", "src/train.py:3"), ("/job/train.py:3", "/job/", "train.py:3"),
        ("/jobs/train.py:3", "/job", "/jobs/train.py:3"), ("/other/train.py:3", "/job", "/other/train.py:3"),
        ("/train.py:3", "/", "train.py:3"), (None, "/job", "the loader"),
    ],
)  # fmt: skip
def test_a_place_is_told_from_the_working_folder(where: str | None, cwd: str, expected: str) -> None:
    line = setting_line(replace(SUMMARY, cwd=cwd, loader=replace(LOADER, where=where)), OWN)
    assert line == f"{expected}: nothing to change"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("python", "train.py", "--workers", "4"), "python train.py --workers 7"),
        (("python", "train.py", "--workers=4", "x y"), "python train.py --workers=7 'x y'"),
        (("python", "train.py"), "python train.py --workers 7"),
        (("python", "train.py", "-j", "4", "-b", "8"), "python train.py -j 7 -b 8"),
        (("python", "train.py", "-j4"), "python train.py -j7"),
        (("python", "src/train.py"), "python src/train.py --workers 7"),
        (("torchrun", "-m", "pkg.train"), "torchrun -m pkg.train --workers 7"),
        (("sh", "-c", "exec python train.py"), None),
        (("bash", "run.sh"), None),
    ],
)
def test_the_scripts_own_option_gets_the_new_number(command: tuple[str, ...], expected: str | None) -> None:
    assert command_with_option(replace(SUMMARY, command=command), replace(OWN, num_workers=7)) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"num_workers": 7, "prefetch_depth": 4}, {"num_workers": 0, "prefetch_depth": 0}, {"prefetch_depth": 4}, {},
        {"num_workers": 7, "worker_cores": "all"}, {"num_workers": 7, "opencv_threads": 0},
        {"num_workers": 7, "decoder": "crop"}, {"num_workers": 7, "decoder": "simd"},
    ],
    ids=str,
)  # fmt: skip
def test_where_more_changes_than_the_number_of_workers_the_option_is_not_enough(changes: dict[str, Any]) -> None:
    assert command_with_option(SUMMARY, replace(OWN, **changes)) is None


def test_a_value_that_is_written_elsewhere_is_named_by_its_place() -> None:
    origin = SettingOrigin(file="/job/conf.py", line=3, name="workers", text="os.cpu_count()", also=(57,))
    line = setting_line(
        replace(SUMMARY, origins={"num_workers": origin}), replace(OWN, num_workers=7, prefetch_depth=4)
    )
    assert line == (
        "conf.py:3: workers 4 -> 7 (num_workers of the loader at train.py:42; written as os.cpu_count(); the call in "
        "line 57 takes it, too); train.py:42: prefetch_factor 2 -> 4"
    )


def test_a_script_without_such_an_option_has_no_such_command() -> None:
    assert command_with_option(replace(SUMMARY, option=None), replace(OWN, num_workers=7)) is None
    assert command_with_option(replace(SUMMARY, loader=None), replace(OWN, num_workers=7)) is None


def test_the_command_that_trains_is_safe_for_a_shell() -> None:
    summary = replace(SUMMARY, command=("python", "my train.py"))
    assert training_command(summary, "runs/a b") == "pipetune run --tuned 'runs/a b' -- python 'my train.py'"


def recommended(summary: ScriptSummary | None, **changes: Any) -> list[str]:
    outcome = replace(TUNED, candidate=replace(OWN, num_workers=7, **changes))
    return to_do(replace(sweep_result(CEILING, DEFAULT), recommended=outcome, script=summary), "runs/1")


def test_there_are_three_ways_to_train_with_it() -> None:
    assert len(recommended(SUMMARY)) == 3
    assert len(recommended(SUMMARY, pin_memory=True)) == 2
    assert len(recommended(replace(SUMMARY, option=None, loader=replace(LOADER, identity=None)))) == 1


def test_what_has_to_be_written_out_in_a_command_is_told() -> None:
    command = ("python", "train.py", "--hf-token", "***", "--out", "{scratch}/x")
    *_, secret, scratch = recommended(replace(SUMMARY, command=command))
    assert "looks like a secret" in secret
    assert "temporary folder" in scratch
    only_the_setting = replace(SUMMARY, command=command, option=None, loader=replace(LOADER, identity=None))
    assert len(recommended(only_the_setting)) == 1


def test_without_a_script_or_anything_better_there_is_nothing_to_do() -> None:
    assert recommended(None) == []
    assert recommended(replace(SUMMARY, loader=None)) == []
    result = replace(sweep_result(CEILING, DEFAULT), script=SUMMARY)
    assert to_do(replace(result, recommended=DEFAULT), "runs/1") == []
    assert to_do(replace(result, recommended=None), "runs/1") == []


def test_notes_tell_of_starts_and_of_files_that_were_touched() -> None:
    written = WrittenFiles(mechanism="overlay", created=tuple(f"/job/out/{number:02}" for number in range(12)))
    notes = script_notes(replace(SUMMARY, starts=3, setup_s=12.0, notes=("a note",), written=written))
    assert notes[0] == "a note"
    assert "3 times" in notes[1]
    assert "12.0 s" in notes[1]
    assert "12 new files: out/00, " in notes[2]
    assert "out/09 and 2 more" in notes[2]
    assert script_notes(SUMMARY) == []


def waits_for_workers(loader: ScriptLoader, num_workers: int = 2) -> str | None:
    """The note of a candidate with 1,200 samples/s whose first batch takes ``time_to_first_batch_s``."""
    candidate = replace(OWN, num_workers=num_workers)
    notes = script_notes(replace(SUMMARY, loader=loader), replace(TUNED, candidate=candidate))
    return next((note for note in notes if "persistent_workers=True" in note), None)


def test_short_epochs_that_wait_for_new_workers_are_told() -> None:
    assert TUNED.measurement is not None
    first_s, rate = TUNED.measurement.time_to_first_batch_s, TUNED.measurement.samples_per_s
    short = replace(LOADER, batches=round(rate * first_s / 16), batch_size=16)  # an epoch as long as its first batch
    told = waits_for_workers(short)
    assert told is not None
    assert "50 % of the time" in told
    assert "25 % of the time" in (waits_for_workers(replace(short, ranks=3)) or "")
    assert waits_for_workers(replace(short, batches=100 * (short.batches or 0))) is None, "long epochs"
    assert waits_for_workers(short, num_workers=0) is None
    assert waits_for_workers(replace(short, settings={**short.settings, "persistent_workers": True})) is None
    assert waits_for_workers(replace(short, batches=None)) is None, "an epoch's length is not known"
    assert waits_for_workers(replace(short, switchable=False)) is None, "DALI's threads live on"
    assert "the rates here leave out" in told
    counted = script_notes(
        replace(SUMMARY, loader=short, epoch_starts_counted=True),
        replace(TUNED, candidate=replace(OWN, num_workers=2)),
    )  # fmt: skip
    assert "100 % of the time, which the rates here include" in counted[-1]


def test_workers_that_live_on_are_an_edit_with_its_condition() -> None:
    kept = replace(OWN, keep_workers=True)
    assert changes_of(LOADER, kept) == {"persistent_workers": (False, True)}
    assert setting_line(SUMMARY, kept) == "train.py:42: persistent_workers False -> True"
    assert command_with_option(SUMMARY, replace(kept, num_workers=7)) is None, "the option sets workers only"
    by_option = replace(SUMMARY, loader=replace(LOADER, written={"num_workers": "int(opt.workers)"}))
    assert setting_line(by_option, replace(kept, num_workers=7)) == (
        "train.py:42: num_workers 4 -> 7 (written as int(opt.workers), the option --workers), "
        "persistent_workers False -> True"
    )
    threads = replace(OWN, num_workers=7, opencv_threads=1)
    assert "(written as int(opt.workers), the option --workers)" in setting_line(by_option, threads)
    assert "option" not in setting_line(by_option, replace(OWN, num_workers=7)), "the command is a line of its own"
    notes = script_notes(SUMMARY, replace(TUNED, candidate=kept))
    assert any("changes nothing of the data set between epochs" in note for note in notes)
    assert not any("changes nothing" in note for note in script_notes(SUMMARY, replace(TUNED, candidate=OWN)))


def test_what_workers_that_live_on_came_to_is_told() -> None:
    assert TUNED.measurement is not None
    first_s, rate = TUNED.measurement.time_to_first_batch_s, TUNED.measurement.samples_per_s
    summary = replace(SUMMARY, loader=replace(LOADER, batches=round(rate * first_s / 16), batch_size=16))
    chosen = replace(TUNED, candidate=OWN)
    faster = replace(TUNED.measurement, samples_per_s=1.5 * rate, ci95=(1.45 * rate, 1.55 * rate))
    kept = replace(TUNED, candidate=replace(OWN, keep_workers=True), measurement=faster)
    assert any("it was 1.50 times as fast (" in note for note in script_notes(summary, chosen, [chosen, kept]))
    assert any("was not measured" in note for note in script_notes(summary, chosen, [chosen]))
    assert summary.loader is not None
    told = replace(summary, loader=replace(summary.loader, renewed_with_epochs=("set_epoch",)))
    assert any("is told of each epoch (set_epoch)" in note for note in script_notes(told, chosen, [chosen]))


def test_the_dictionary_in_which_a_value_comes_is_named() -> None:
    origin = SettingOrigin(file="/job/train.py", line=42, name="num_workers", text="**options")
    line = setting_line(replace(SUMMARY, origins={"num_workers": origin}), replace(OWN, num_workers=7))
    assert line == "train.py:42: num_workers 4 -> 7 (comes in **options)"


def test_a_field_of_the_trainers_arguments_is_named() -> None:
    origin = SettingOrigin(
        file="/job/train.py", line=42, name="dataloader_num_workers", text="a field of TrainingArguments"
    )
    line = setting_line(replace(SUMMARY, origins={"num_workers": origin}), replace(OWN, num_workers=7))
    assert line == (
        "train.py:42: dataloader_num_workers 4 -> 7 "
        "(num_workers of the loader at train.py:42; written as a field of TrainingArguments)"
    )


def test_the_call_of_an_installed_library_is_named_beside_a_place_in_it() -> None:
    library = "/env/lib/python3.12/site-packages/detector/build.py"
    calls = (SourceCall(file=library, span=(9, 9, 4, 40)), SourceCall(file="/job/train.py", span=(3, 4, 0, 9)))
    loader = replace(LOADER, where=f"{library}:9", written={}, calls=calls)
    line = setting_line(replace(SUMMARY, loader=loader), replace(OWN, num_workers=7))
    assert line == f"{library}:9: num_workers 4 -> 7 (in an installed library, which train.py:3 calls)"
    line = setting_line(replace(SUMMARY, loader=replace(loader, calls=calls[:1])), replace(OWN, num_workers=7))
    assert line.endswith(" (in an installed library)")
