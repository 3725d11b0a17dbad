"""``pipetune.sweep``: the command's sweep, called from a notebook or a script."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipetune.errors import PipetuneError, UsageError
from pipetune.runs.load import load
from pipetune.runs.run import Run
from pipetune.usercode import make_loader
from pipetune.usercode.make_loader import MakeLoader

if TYPE_CHECKING:
    from pipetune.sweeping.observer import SweepObserver

N = TypeVar("N", int, float)
T = TypeVar("T")


def sweep(
    make_loader_or_dataset: MakeLoader | str | Path | Sequence[str],
    *,
    model: str = "resnet50",
    target: float = 0.9,
    target_metric: str = "goodput",
    backends: Sequence[str] | None = None,
    workers: Sequence[int] | int | str | None = None,
    prefetch: Sequence[int] | int | str = (2, 4),
    batch_size: int = 64,
    image_size: int = 224,
    augment: str = "basic",
    precision: str = "auto",
    compile: bool = False,
    ceilings: Sequence[int] | int | str | None = None,
    device: str = "auto",
    seconds: float = 4.0,
    budget: str | float | None = None,
    grid: bool = False,
    cache: str = "warm",
    timeout: str | float | None = None,
    vary: Sequence[str] | str | None = None,
    fix: Mapping[str, Any] | None = None,
    exact: bool = False,
    cheapest: Sequence[str] | str = ("accelerator", "cores", "memory", "pixels"),
    max_workers: int | None = None,
    max_ram: str | int | None = None,
    max_shm: str | int | None = None,
    blocks: int | None = None,
    effort: str = "normal",
    allow_writes: bool = False,
    ranks: int | str = 1,
    sync: str = "step",
    bind: str = "none",
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Measure candidate input pipelines, each in a process of its own, and return what came out::

        run = pipetune.sweep("/data/imagenet/train", device="cuda:0")
        run.frame()[["key", "samples_per_s", "goodput", "cause"]]
        pipetune.plot.rate_by_workers(run)

    Or tune a loader of your own, made by a function that takes at least the number of workers::

        def make_loader(num_workers, prefetch_factor, batch_size):
            return DataLoader(dataset, batch_size, num_workers=num_workers, prefetch_factor=prefetch_factor)

        run = pipetune.sweep(make_loader)

    The function is taken to each process by value. Its baseline is ``num_workers=0``; it may also take
    ``pin_memory`` and ``persistent_workers``. Batches are tensors or arrays, alone or with labels, in a tuple or dict.

    Or tune your own training script, unmodified and in its own training loop, by its command::

        run = pipetune.sweep(["python", "train.py", "--data", "/data/x"])

    The arguments are the options of ``pipetune sweep``; ``pipetune sweep --help`` says what each means. A sweep that is
    interrupted (Ctrl-C, or the notebook's stop button) returns what it has measured.

    Args:
        make_loader_or_dataset: a function as above, a folder of images, ``synthetic:caltech256``, or the words of a
            command.
        augment: what is done to each image: ``"basic"`` (random resized crop and flip), ``"randaugment"``,
            ``"trivialaugment"``, ``"colorjitter"`` or ``"mixup"``.
        vary: settings of a loader to try besides their defaults (``["transfer", "loader"]``), ``"none"`` or ``"all"``;
            by default those that change the rate most.
        fix: settings to keep at a value, e.g. ``{"transfer": "float32"}``.
        exact: leave out backends whose pixels differ visibly from Pillow's.
        cheapest: what counts as cost, the most important first: accelerator, cores, memory, pixels.
        compile: train the model compiled by ``torch.compile``, as your training does.
        ceilings: other batch sizes with which the accelerator's max ingestion rate is measured as well.
        max_workers: leave out larger worker counts; ``max_ram`` and ``max_shm``: what a candidate may take, ``"8GiB"``.
        blocks: compare the best candidates side by side so often at most, the first time with the default. Unless
            given, once with ``effort="quick"``, up to three times with ``"thorough"``, and with ``"normal"`` up to
            three times while it is uncertain whether the target is reached, twice where nothing reaches it.
        effort: ``"quick"``, ``"normal"`` or ``"thorough"``: how far the search goes, see ``pipetune sweep --help``.
        allow_writes: let a script change existing files, see ``pipetune sweep --help``.
        ranks: training processes that share this host and are measured at the same time; ``"auto"``: one for each GPU.
        sync: ``"step"``: their steps end together; ``"none"``: they are jobs of their own.
        bind: cores that a rank may use: ``"none"`` (all), ``"even"`` or ``"numa"``.
        out: run folder, new or empty; ``pipetune-runs/TIME-DATASET`` unless given.
        progress: show which candidate is being measured and what those before came to.

    Raises:
        UsageError: an argument that cannot be used, named as the command's option.
        PipetuneError: nothing could be measured.
    """
    from pipetune.candidates.varied import names_to_vary
    from pipetune.sweeping.options import SweepOptions
    from pipetune.sweeping.ranks import device_and_ranks, parse_ranks
    from pipetune.sweeping.run import start
    from pipetune.sweeping.script_run import start_script
    from pipetune.sweeping.script_setup import uri_of
    from pipetune.units import parse_bytes, parse_duration, parse_names

    loader: bytes | None = None
    if callable(make_loader_or_dataset):
        loader = make_loader.pack(make_loader_or_dataset)
        make_loader_or_dataset = make_loader.uri_of(make_loader_or_dataset)
    command: tuple[str, ...] = ()
    if not isinstance(make_loader_or_dataset, (str, Path)):
        command = _command(make_loader_or_dataset)
        make_loader_or_dataset = uri_of(command)
    device, rank_count = device_and_ranks(device, parse_ranks(str(ranks)))
    chosen = SweepOptions(
        dataset=str(make_loader_or_dataset), model=model, target=target, target_metric=target_metric,
        backends=_names(backends, parse_names), workers=None if workers is None else _numbers("--workers", workers),
        prefetch=_numbers("--prefetch", prefetch), batch_size=_batch_size(batch_size), image_size=image_size,
        precision=precision, compile=compile, device=device, augment=augment,
        ceilings=None if ceilings is None else _numbers("--ceilings", ceilings),
        seconds=seconds, budget_s=_text_or_number("--budget", budget, parse_duration), grid=grid, cache=cache,
        timeout_s=_text_or_number("--timeout", timeout, parse_duration), seed=seed, vary=_names(vary, names_to_vary),
        fix=tuple(_fixed(*pair) for pair in (fix or {}).items()), exact=exact,
        cheapest=_names(cheapest, parse_names) or (), max_workers=max_workers,
        max_ram_bytes=_text_or_number("--max-ram", max_ram, parse_bytes),
        max_shm_bytes=_text_or_number("--max-shm", max_shm, parse_bytes), blocks=blocks, effort=effort,
        command=command, allow_writes=allow_writes, ranks=rank_count, sync=sync, bind=bind,
    )  # fmt: skip
    folder, display = None if out is None else Path(out), _display(progress)
    ended = start_script(chosen, folder, display) if command else start(chosen, folder, display, loader)
    if ended.not_written is not None:
        raise ended.not_written
    run = load(ended.path)
    if ended.exit_code and not any(outcome.measurement for outcome in run.outcomes if outcome.role != "ceiling"):
        raise PipetuneError(ended.message or "nothing could be measured", hint=f"see {ended.path}")
    return run


def _display(progress: bool) -> SweepObserver:
    from rich.console import Console

    from pipetune.report.terminal.notebook import NotebookDisplay, in_notebook
    from pipetune.report.terminal.progress import Display
    from pipetune.sweeping.observer import SweepObserver

    if not progress:
        return SweepObserver()
    return NotebookDisplay() if in_notebook() else Display(Console(file=sys.stderr))


def _command(given: object) -> tuple[str, ...]:
    """The words of a command; nothing else is gone through, a loader's batches least of all."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(word, (str, Path)) for word in given):
        raise UsageError(
            f"a {type(given).__name__} is neither a function, a folder nor a command",
            hint="a loader of your own is given as the function that makes it: def make_loader(num_workers): …",
        )
    if not given:
        raise UsageError("the command is empty", hint='write pipetune.sweep(["python", "train.py"])')
    return tuple(map(str, given))


def _fixed(name: str, value: Any) -> tuple[str, Any]:
    """A setting and its value; text is read as the command reads it: ``"no"`` is ``False``."""
    from pipetune.candidates.varied import value_of

    return value_of(f"{name}={value}") if isinstance(value, str) else (name, value)


def _numbers(option: str, given: Sequence[int] | int | str) -> tuple[int, ...]:
    from pipetune.units import parse_numbers

    if isinstance(given, str):
        return _parsed(option, given, parse_numbers)
    return (given,) if isinstance(given, int) else tuple(given)


def _batch_size(given: object) -> int:
    """A number of samples.

    Raises:
        UsageError: it is something else.
    """
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        hint = "write a number; pipetune sweep --batch-size auto and pipetune batch-size look for the largest one"
        raise UsageError(f"--batch-size {given!r} is no number", hint=hint) from None


def _parsed(option: str, text: str, parse: Callable[[str], T]) -> T:
    """A text as the command reads it.

    Raises:
        UsageError: names the option.
    """
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}", hint=error.hint) from None


def _names(given: Sequence[str] | str | None, parse: Callable[[str], tuple[str, ...]]) -> tuple[str, ...] | None:
    return None if given is None else parse(given) if isinstance(given, str) else tuple(given)


def _text_or_number(option: str, given: str | N | None, parse: Callable[[str], N]) -> N | None:
    return _parsed(option, given, parse) if isinstance(given, str) else given
