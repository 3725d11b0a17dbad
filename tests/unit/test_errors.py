from __future__ import annotations

import signal

import pytest

from pipetune.errors import (
    Interrupted,
    MissingPackageError,
    PipetuneError,
    UsageError,
    did_you_mean,
    exit_code_of,
    nearest,
)


@pytest.mark.parametrize(("kind", "code"), [(PipetuneError, 1), (UsageError, 2), (MissingPackageError, 2)])
def test_exit_codes(kind: type[PipetuneError], code: int) -> None:
    assert kind("it broke").exit_code == code
    assert isinstance(kind("it broke"), PipetuneError)


def test_the_hint_is_on_the_same_line() -> None:
    error = UsageError("no folder 'x'", hint="name one with --dataset")
    assert str(error) == "no folder 'x'; name one with --dataset"
    assert (error.message, error.hint) == ("no folder 'x'", "name one with --dataset")


def test_without_a_hint_the_message_stands_alone() -> None:
    assert str(PipetuneError("it broke")) == "it broke"
    assert PipetuneError("it broke").hint is None


def test_interruptions_end_with_128_plus_the_signal() -> None:
    assert exit_code_of(KeyboardInterrupt()) == 130
    assert exit_code_of(Interrupted(signal.SIGTERM)) == 143


def test_except_exception_does_not_catch_an_interruption() -> None:
    assert not issubclass(Interrupted, Exception)


NAMES = ("pillow", "pillow-simd", "opencv", "torchvision")


def test_the_names_most_like_a_mistyped_one_are_suggested() -> None:
    assert nearest("Pilow", NAMES) == ["pillow", "pillow-simd"]
    assert nearest("Pilow", NAMES, limit=1) == ["pillow"]
    assert did_you_mean("pilow", iter(NAMES)) == "did you mean pillow or pillow-simd?"
    assert did_you_mean("opncv", NAMES, prefix="the:") == "did you mean the:opencv?"


def test_without_a_like_name_all_are_listed_or_something_else_is_suggested() -> None:
    assert nearest("xyz", NAMES) == []
    assert (
        did_you_mean("xyz", iter(NAMES), prefix="a:") == "choose from a:pillow, a:pillow-simd, a:opencv, a:torchvision"
    )
    assert did_you_mean("xyz", NAMES, otherwise="see the list") == "see the list"
