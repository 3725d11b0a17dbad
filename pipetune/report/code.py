"""The recommended configuration as code to paste into a training script. The text is in ``templates/*.py.j2``.

The run may be somebody else's, so no value of it enters the code as it is: a text is quoted (``repr``), a number is
one, and the name of a function is made of identifiers.
"""

from __future__ import annotations

import dataclasses
import functools
import keyword
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipetune.augmentation.recipes import BASIC
from pipetune.candidates.allocators import lines_before
from pipetune.candidates.settings import SETTINGS, has_effect
from pipetune.candidates.torch_arguments import dataloader_arguments, written_arguments
from pipetune.datasets.upright import TURNS
from pipetune.records.imagenet import MEAN, STD
from pipetune.records.sweep import AcceleratorSpec, Candidate
from pipetune.registry import DALI, DEVICE, TORCH, USER, find_backend, loader_for
from pipetune.usercode.make_loader import SCHEME, arguments_in

if TYPE_CHECKING:
    from jinja2 import Environment

    from pipetune.sweeping.result import SweepResult

#: Characters in a line of code.
_WIDTH = 110
#: What counts as an image in code for a folder without class folders.
_ENDINGS = '{".jpg", ".jpeg", ".png", ".webp"}'


def code_of_sweep(result: SweepResult, recommended: Candidate, run_folder: str) -> str:
    """Python source that builds ``loader`` as the recommended candidate was measured in a sweep."""
    data = result.dataset
    return code_for(
        for_training(recommended, result.accelerator), root=str(data.get("root") or ""),
        image_size=result.workload["image_size_px"], flat=int(data.get("classes") or 0) <= 1,
        on_gpu=result.accelerator.kind == "cuda", run_folder=run_folder, shards=bool(data.get("shards")),
        plain=bool(data.get("plain")), nested=bool(data.get("nested")), empty_classes=bool(data.get("empty_classes")),
        leave_out=tuple(map(str, data.get("undecodable") or ())), ranks=result.workload.get("ranks", 1),
        augment=result.workload.get("augment", BASIC),
    )  # fmt: skip


def code_for(
    candidate: Candidate, *, root: str, image_size: int, flat: bool, on_gpu: bool, run_folder: str,
    shards: bool = False, plain: bool = True, nested: bool = False, empty_classes: bool = False,
    leave_out: Sequence[str] = (), ranks: int = 1, augment: str = BASIC,
) -> str:  # fmt: skip
    """Python source that builds ``loader`` as the candidate was measured.

    Args:
        candidate: what to build.
        root: the data set's folder; for the user's own loader, the name of the function that makes it.
        image_size: px.
        flat: the images lie in one folder without class folders.
        on_gpu: the accelerator is a CUDA device.
        run_folder: of the run that measured the candidate, for ``pipetune.open_loader``.
        shards: the images lie in tar files.
        plain: see :attr:`pipetune.datasets.index.ImageSet.plain`; other data need ``pipetune.open_loader``.
        nested: some images lie in folders below their class folder.
        empty_classes: some class folder has no images.
        leave_out: paths of images that do not decode.
        ranks: of the training. Of several each has to read its own part, as ``pipetune.open_loader`` does.
        augment: what is done to each image, which ``pipetune.open_loader`` does as it was measured.

    Raises:
        TypeError: a number is none.
    """
    is_special = not plain or (nested and loader_for(candidate).name == DALI)
    name = _template_of(candidate, needs_ours=shards or is_special, ranks=ranks, augment=augment)
    decodes_on_gpu = on_gpu and find_backend(candidate.backend).decodes_on_cuda
    return _environment().get_template(f"{name}.py.j2").render(
        candidate=candidate, ranks=ranks, root=repr(root), size=_number(image_size), flat=flat, on_gpu=on_gpu,
        decodes_on_gpu=decodes_on_gpu, run_folder=repr(run_folder), augment=repr(augment),
        is_augmented=augment != BASIC, is_special=is_special and not shards, empty_classes=empty_classes,
        leave_out=_wrapped([f"{path!r}," for path in leave_out], "    ", "    ") if leave_out else "",
        before=lines_before(candidate.allocator), as_bytes=candidate.transfer == "uint8", endings=_ENDINGS,
        call=_call(candidate, root), fields=_fields(candidate),
        turns=_wrapped([f"{number}: '{turn}'," for number, turn in TURNS.items()], "    ", "    "),
        mean=list(MEAN), std=list(STD),
        mean_255=[round(255 * value, 3) for value in MEAN], std_255=[round(255 * value, 3) for value in STD],
    )  # fmt: skip


def for_training(candidate: Candidate, accelerator: AcceleratorSpec) -> Candidate:
    """The candidate as a training script opens it: page-locked where the accelerator is a GPU, emulated or not.

    A loader of the user's own is left as it was measured.
    """
    as_it_is = accelerator.kind == "cpu" or loader_for(candidate).name == USER
    return candidate if as_it_is else dataclasses.replace(candidate, pin_memory=True)


def needs_open_loader(candidate: Candidate) -> bool:
    """Whether the code must call :func:`pipetune.open_loader`, because a plain ``DataLoader`` cannot load like this."""
    return _template_of(candidate) == _OPEN_LOADER


_OPEN_LOADER = "open_loader"


def _template_of(candidate: Candidate, *, needs_ours: bool = False, ranks: int = 1, augment: str = BASIC) -> str:
    loader = loader_for(candidate)
    if loader.name == USER:
        return loader.name
    if needs_ours or ranks > 1 or augment != BASIC:
        return _OPEN_LOADER
    if loader.has_decoder:
        return loader.name
    code = find_backend(candidate.backend).code
    if code is None or loader.name != TORCH or candidate.reuse_buffers:
        return _OPEN_LOADER
    return code


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pipetune.report"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,  # Python, not HTML
    )  # fmt: skip
    environment.filters["number"] = _number
    return environment


def _call(candidate: Candidate, root: str) -> str:
    if loader_for(candidate).name == USER:
        return call_of(root, candidate)
    *arguments, last = "shuffle=True", "drop_last=True", *written_arguments(candidate)
    words = ["loader = DataLoader(dataset,", *(f"{argument}," for argument in arguments), f"{last})"]
    return _wrapped(words, " " * 20)


def _wrapped(words: list[str], indent: str, first: str = "") -> str:
    """The words in lines of at most :data:`_WIDTH` characters, none of them cut: a quoted text may hold spaces."""
    lines = [first + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + word)
    return "\n".join(lines)


def _fields(candidate: Candidate) -> str:
    """The candidate's fields as arguments, without those that have their default."""
    known = [field.name for field in dataclasses.fields(Candidate)]
    required = {field.name for field in dataclasses.fields(Candidate) if field.default is dataclasses.MISSING}
    plain = Candidate(**{name: getattr(candidate, name) for name in required})
    needed = [
        f"{name}={getattr(candidate, name)!r},"
        for name in known
        if name in required or getattr(candidate, name) != getattr(plain, name)
    ]
    return _wrapped(needed, "    ", "    ")


def settings_for(candidate: Candidate, root: str = "") -> str:
    """The candidate's settings in one line, for people who have a loader already.

    Args:
        root: for the user's own loader, the name of the function that makes it; only arguments that it takes are named.
    """
    loader = loader_for(candidate).name
    if loader == DEVICE:
        arguments = [f"{name}={_number(getattr(candidate, name))}" for name in ("num_workers", "prefetch_depth")]
    elif loader == DALI:
        numbers = {"num_threads": candidate.num_workers, "prefetch_queue_depth": candidate.prefetch_depth}
        arguments = [f"{name}={_number(value)}" for name, value in numbers.items()]
    elif loader == USER:
        arguments = _own_arguments(candidate, root)
    else:
        arguments = written_arguments(candidate)
    for name, setting in SETTINGS.items():
        value = getattr(candidate, name)
        if setting.argument is None and value != setting.default and has_effect(setting, candidate):
            arguments.append(f"{name}={value if value in setting.values else repr(value)}")
    return ", ".join(arguments)


#: In place of a name that is none, as that of a lambda.
_NO_NAME = "make_loader"


def call_of(uri: str, candidate: Candidate) -> str:
    """Code that makes the user's own loader as it was measured."""
    name = uri.removeprefix(SCHEME).partition("(")[0]
    arguments = ", ".join(_own_arguments(candidate, uri))
    if not all(map(_is_name, name.replace(":", ".").split("."))):
        return f"{_NO_NAME}({arguments})"
    if ":" in name and "batch_size" not in arguments_in(uri):  # it takes no settings: they go where it makes its loader
        return f"DataLoader(…, {arguments})  # in {name}"
    return f"{name.replace(':', '.')}({arguments})"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _number(value: Any) -> str:
    """A number as code.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"a number was expected, not {value!r}")
    return repr(value)


def _own_arguments(candidate: Candidate, uri: str) -> list[str]:
    values = dataloader_arguments(candidate)
    return [f"{name}={values[name]!r}" for name in arguments_in(uri)]
