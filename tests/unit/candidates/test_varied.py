from __future__ import annotations

import pytest

from pipetune.augmentation.recipes import PLACES
from pipetune.candidates import allocators, varied
from pipetune.candidates.varied import names_to_vary, settings, value_of, word
from pipetune.errors import UsageError
from pipetune.registry import BACKENDS


def chosen(
    vary: str | None = None,
    *fix: str,
    backends: tuple[str, ...] = ("opencv",),
    on_gpu: bool = False,
    places: tuple[str, ...] = (),
) -> dict:
    """As ``--vary`` and ``--fix`` choose."""
    names = None if vary is None else names_to_vary(vary)
    return dict(settings(names, [value_of(pair) for pair in fix], backends=backends, on_gpu=on_gpu, places=places))


def test_settings_that_matter_are_varied_unless_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "find_tcmalloc", lambda: None)
    assert chosen() == {
        "loader": ("torch", "threads"), "transfer": ("float32", "uint8"), "reuse_buffers": (False, True),
        "allocator": ("default", "glibc"),
    }  # fmt: skip
    assert chosen("none") == {}
    assert chosen("in-order, transfer") == {"in_order": (True, False), "transfer": ("float32", "uint8")}
    monkeypatch.setattr(allocators, "find_tcmalloc", lambda: "/lib/libtcmalloc_minimal.so.4")
    assert chosen("allocator") == {"allocator": ("default", "glibc", "tcmalloc")}


def test_where_images_are_augmented_is_tried_if_they_are() -> None:
    both = {"places": PLACES}
    assert "transforms_on" not in chosen("all")
    assert chosen(**both)["transforms_on"] == chosen("all", **both)["transforms_on"] == ("worker", "device")
    assert chosen("none", **both) == {"transforms_on": ("worker",)}
    assert chosen("none", "transforms_on=device", **both) == {"transforms_on": ("device",)}
    assert chosen(places=("worker",))["transforms_on"] == ("worker",)


@pytest.mark.parametrize(
    ("places", "words"), [((), "no effect on crops and flips"), (("worker",), "augments no images")]
)
def test_a_place_that_is_not_possible_is_refused(places: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        chosen(None, "transforms_on=device", places=places)


def test_the_jpeg_engine_is_a_gpus() -> None:
    assert "hw_decoder_load" not in chosen("all")
    assert chosen("all", on_gpu=True)["hw_decoder_load"] == (None, 0.5, 0.8, 1.0)


def test_what_is_fixed_is_not_varied() -> None:
    assert chosen(None, "transfer=float32")["transfer"] == ("float32",)
    assert chosen("none", "in_order=no", "channels_last=yes", "hw_decoder_load=0.3") == {
        "in_order": (False,), "channels_last": (True,), "hw_decoder_load": (0.3,),
    }  # fmt: skip
    assert chosen("none", "hw_decoder_load=default") == {"hw_decoder_load": (None,)}


def test_of_a_loader_of_ones_own_only_what_is_outside_of_it() -> None:
    assert set(chosen(backends=("own",))) == {"allocator"}


def test_values_given_from_python_are_checked_as_well() -> None:
    assert dict(settings((), [("transfer", "uint8")], backends=("opencv",), on_gpu=False)) == {"transfer": ("uint8",)}
    for pair in (("transfer", "float16"), ("in_order", 1), ("hw_decoder_load", 1.5), ("colour", "red")):
        with pytest.raises(UsageError):
            settings((), [pair], backends=("opencv",), on_gpu=False)


def test_values_are_written_as_they_are_read() -> None:
    assert [word(value) for value in (True, False, None, "thread", 0.5)] == ["yes", "no", "default", "thread", "0.5"]


@pytest.mark.parametrize(
    ("vary", "fix", "expected"),
    [
        ("transfers", (), "--vary: a loader has no setting 'transfers'"),
        (None, ("color=red",), "--fix: a loader has no setting 'color'"),
        (None, ("transfer=float16",), "--fix transfer=float16 is not a value"),
        (None, ("transfer",), "--fix transfer= is not a value"),
        (None, ("hw_decoder_load=2",), "hw_decoder_load=2.0 is not a value"),
        (None, ("hw_decoder_load=half",), "is not a value"),
    ],
)
def test_mistakes_are_reported(vary: str | None, fix: tuple[str, ...], expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        chosen(vary, *fix)
    assert caught.value.hint


def test_named_backends_are_kept_in_order_and_checked() -> None:
    assert varied.backends(("opencv", "pillow", "opencv")) == (("opencv", "pillow"), ())
    with pytest.raises(UsageError, match="did you mean opencv"):
        varied.backends(("opncv",))


def test_what_is_not_installed_is_left_out_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varied, "installed_version", lambda backend: None if backend.name == "dali" else "1")
    names, notes = varied.backends(None)
    assert "dali" not in names
    assert set(names) == set(BACKENDS) - {"dali"}
    assert BACKENDS["dali"].install in notes[0]


def test_without_a_cuda_device_what_needs_one_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varied, "installed_version", lambda backend: "1")
    on_cpu, notes = varied.backends(None, on_gpu=False)
    assert set(BACKENDS) - set(on_cpu) == {"nvjpeg", "nvimagecodec", "dali-cpu"}
    assert notes == ()  # nobody has asked for them
    assert set(varied.backends(None, on_gpu=True)[0]) == set(BACKENDS)
    names, notes = varied.backends(("nvjpeg", "pillow", "dali-cpu"), on_gpu=False)
    assert names == ("pillow",)
    assert notes == (
        "backend nvjpeg is left out: it decodes on a CUDA device, and there is none",
        "backend dali-cpu is left out: without a CUDA device it is the same as dali",
    )
    with pytest.raises(UsageError, match="nvjpeg is left out") as caught:
        varied.backends(("nvjpeg",), on_gpu=False)
    assert caught.value.hint


def test_exact_leaves_out_whose_pixels_differ_and_says_by_how_much() -> None:
    names, notes = varied.backends(("pillow", "opencv", "jpeg-roi", "jpeg-roi-fast"), exact=True)
    assert names == ("pillow", "jpeg-roi")
    assert notes[0] == "backend opencv is left out by --exact: its pixels are 25 dB from Pillow's, below 45 dB"
    assert len(notes) == 2
    with pytest.raises(UsageError, match="--exact leaves none of these backends; add pillow"):
        varied.backends(("opencv",), exact=True)


def test_beside_a_cuda_device_whole_images_come_first_and_stay_where_the_setting_is_not_varied() -> None:
    """Decoding only crops ends the process with some libraries on some GPUs, and then no other value would be tried."""
    both, one = ("whole", "window"), ("whole",)
    for backend in ("dali", "nvimagecodec"):
        assert chosen(None, on_gpu=True, backends=(backend,))["decode_region"] == both
        assert chosen("none", on_gpu=True, backends=("pillow", backend))["decode_region"] == one
        assert chosen("none", "decode_region=window", on_gpu=True, backends=(backend,))["decode_region"] == ("window",)
        assert "decode_region" not in chosen(None, backends=(backend,))
    assert "decode_region" not in chosen("none", on_gpu=True, backends=("pillow", "nvjpeg", "dali-cpu"))


def test_all_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varied, "installed_version", lambda backend: "1.0" if backend.name == "pillow" else None)
    names, notes = varied.backends(None)
    assert names == ("pillow",)
    (note,) = notes
    assert note.startswith("backends left out: ")
    assert "opencv is not installed (" in note
