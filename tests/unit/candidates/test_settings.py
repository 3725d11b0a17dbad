from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from pipetune.candidates.describe import describe
from pipetune.candidates.settings import SETTINGS, current_name, current_value, has_effect, python_start
from pipetune.candidates.torch_arguments import dataloader_arguments
from pipetune.records.candidate import KEY_WORDS, Candidate

PLAIN = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=64)


def test_a_setting_is_a_field_of_the_candidate_with_its_default() -> None:
    assert {name: setting.default for name, setting in SETTINGS.items()} == {
        name: getattr(PLAIN, name) for name in SETTINGS
    }
    assert all(setting.name == name for name, setting in SETTINGS.items())


def test_each_value_has_a_key_of_its_own() -> None:
    many = {replace(PLAIN, **{name: value}).key for name, setting in SETTINGS.items() for value in setting.values}
    assert len(many) == 1 + sum(len(setting.values) - 1 for setting in SETTINGS.values())
    assert {*SETTINGS, "pin_memory"} == {name for name, _, _ in KEY_WORDS}


def test_each_value_has_words_of_its_own() -> None:
    many = {describe(replace(PLAIN, **{name: value})) for name, setting in SETTINGS.items() for value in setting.values}
    assert len(many) == 1 + sum(len(setting.values) - 1 for setting in SETTINGS.values())


def test_arguments_are_torchs() -> None:
    data = pytest.importorskip("torch.utils.data", reason="the arguments are torch's")
    arguments = dataloader_arguments(PLAIN)
    assert {setting.argument for setting in SETTINGS.values() if setting.argument} < set(arguments)
    opened = data.DataLoader([1, 2, 3], **arguments)  # refuses what it does not know
    assert (opened.num_workers, opened.prefetch_factor, opened.persistent_workers) == (2, 2, True)
    assert opened.multiprocessing_context.get_start_method() == "fork"


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("channels_last", {}, False),
        ("channels_last", {"reuse_buffers": True}, True),
        ("channels_last", {"loader": "threads"}, True),
        ("start_method", {}, True),
        ("start_method", {"num_workers": 0}, False),
        ("hw_decoder_load", {}, False),
        ("hw_decoder_load", {"backend": "dali"}, True),
        ("hw_decoder_load", {"backend": "nvimagecodec"}, True),
        ("hw_decoder_load", {"backend": "nvjpeg"}, False),
        ("hw_decoder_load", {"backend": "dali-cpu"}, False),
        ("decode_region", {"backend": "dali"}, True),
        ("decode_region", {"backend": "nvjpeg"}, False),
        ("transfer", {"backend": "nvjpeg"}, True),
        ("reuse_buffers", {"backend": "nvjpeg"}, False),
        ("transfer", {"backend": "own"}, False),
    ],
)
def test_whether_a_setting_has_an_effect(name: str, changes: dict[str, object], expected: bool) -> None:
    assert has_effect(SETTINGS[name], replace(PLAIN, **changes)) is expected  # type: ignore[arg-type]


def test_names_and_values_of_earlier_versions() -> None:
    assert (current_name("worker_kind"), current_value("worker_kind", "thread")) == ("loader", "threads")
    assert (current_name("transfer"), current_value("transfer", "uint8")) == ("transfer", "uint8")


@pytest.mark.parametrize(
    ("version", "start"),
    [("3.11.7", "fork"), ("3.13.0", "fork"), ("3.14.0", "forkserver"), ("3.14.0rc1", "forkserver"), ("", "fork")],
)
def test_how_python_starts_processes(version: str, start: str) -> None:
    assert python_start(version) == start
    if version == "3.11.7" and sys.version_info < (3, 14):
        assert SETTINGS["start_method"].unwritten == ("fork",)
