"""``pipetune sweep``: parse, run the sweep, render, return an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetune.augmentation.recipes import BASIC, RECIPES
from pipetune.candidates.settings import SETTINGS
from pipetune.candidates.varied import word
from pipetune.errors import UsageError
from pipetune.processes.signals import stop_on_sigterm

_SETTINGS = ", ".join(f"{name} ({', '.join(map(word, setting.values))})" for name, setting in SETTINGS.items())
_RECIPES = "; ".join(f"{recipe.name}: {recipe.about}" for recipe in RECIPES.values())
_VARIED = ", ".join(name for name, setting in SETTINGS.items() if setting.by_default)


def sweep_command(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Your own training script, after --, e.g. -- python train.py --data /data/x: its loader is tuned in "
            "its own training loop, unmodified. {scratch} in it stands for a temporary folder.",
            metavar="-- COMMAND",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="A folder of images (flat, or class folders), WebDataset shards (a tar file or a folder of them), or "
            "synthetic:caltech256|imagenet|imagenet-real[?n=2000&seed=0&classes=200]."
        ),
    ] = None,
    loader: Annotated[
        str | None,
        typer.Option(
            metavar="PKG.MOD:NAME",
            help="A loader of your own instead of a data set: a function that takes num_workers, one without "
            "parameters that returns a DataLoader, a DataLoader, an object with train_dataloader(), or a call of "
            "one with plain values.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="A torchvision classifier; what is trained on the batches.")] = "resnet50",
    target: Annotated[float, typer.Option(help="Share of the accelerator's own ceiling to reach, 0 to 1.")] = 0.9,
    target_metric: Annotated[
        str, typer.Option(help="goodput: rate / max ingestion rate. nvml: GPU utilisation as NVML reports it.")
    ] = "goodput",
    backends: Annotated[
        str | None, typer.Option(help="Decode backends, comma separated. [default: all that are installed]")
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Leave out backends whose pixels differ visibly from Pillow's (below 45 dB PSNR)."
        ),
    ] = False,
    workers: Annotated[
        str | None,
        typer.Option(help="Loader workers to try, e.g. 0,1,2,4. [default: from the cores after affinity and quota]"),
    ] = None,
    vary: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help=f"Settings of a loader to try besides their defaults, comma separated: {_SETTINGS}; or none, or all. "
            f"[default: {_VARIED}]",
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Keep one of these settings at a value, e.g. transfer=float32."),
    ] = None,
    prefetch: Annotated[str, typer.Option(help="Prefetch depths to try, in batches per worker.")] = "2,4",
    batch_size: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Samples per batch; auto: the smallest with which a GPU is as fast as with any, found first "
            "(pipetune batch-size).",
        ),
    ] = "64",
    image_size: Annotated[int, typer.Option(help="Edge of the training crop, in pixels.")] = 224,
    augment: Annotated[
        str, typer.Option(metavar="NAME", help=f"What is done to each image after it is decoded. {_RECIPES}.")
    ] = BASIC,
    precision: Annotated[
        str,
        typer.Option(help="fp32, amp (float16) or bf16. auto: bf16 where the GPU has it, else amp; fp32 on the CPU."),
    ] = "auto",
    compile: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Train the model compiled by torch.compile (mode default), as your training does, instead of operator "
            "by operator (eager). Compiling is part of the warm-up.",
        ),
    ] = False,
    ceilings: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Other batch sizes with which the accelerator's max ingestion rate is measured as well, e.g. 128,256: "
            "whether larger batches would make it faster.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto, cuda:N, xpu:N, cpu, emulated:NAME (v100, a100-tf32, …) or emulated:RATE in samples/s; "
            "?launch=0&copy=0 after a name leaves out what a step costs the host."
        ),
    ] = "auto",
    ranks: Annotated[
        str,
        typer.Option(
            metavar="R|auto",
            help="Training processes that share this host, measured at the same time; auto: one for each GPU. "
            "--device 8xa100 is --ranks 8 --device emulated:a100.",
        ),
    ] = "1",
    sync: Annotated[
        str,
        typer.Option(help="With --ranks: step: a step ends when all ranks have computed it; none: jobs of their own."),
    ] = "step",
    bind: Annotated[
        str,
        typer.Option(help="With --ranks: cores of a rank: none (all), even (its share), numa (those of its node)."),
    ] = "none",
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="H|auto",
            help="Hosts that measure each candidate at the same time and share the storage: start this command once on "
            "each, by srun --ntasks-per-node=1 or torchrun --nproc-per-node=1. [default: this host alone]",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            help="Steady measurement per candidate, in seconds, after the warm-up; less where the answer is clear, up "
            "to three times as much where it is not."
        ),
    ] = 4.0,
    budget: Annotated[
        str | None, typer.Option(help="Stop proposing candidates after this long, e.g. 90s, 5m. [default: none]")
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Measure every combination instead of searching.")] = False,
    cheapest: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="What counts as cost, the most important first: accelerator (decoding on it), cores, memory, pixels "
            "(deviation from Pillow's). What is not named does not count.",
        ),
    ] = "accelerator,cores,memory,pixels",
    effort: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How far the search goes. quick: to the first sufficient candidate. normal: while at least a core "
            "and a tenth of those in use may be saved. thorough: all decoders are probed, any saving is looked for.",
        ),
    ] = "normal",
    blocks: Annotated[
        int | None,
        typer.Option(
            help="After the search, measure the best candidates and the default again, in turn, so that no drift of "
            "the machine decides between them: at most this many rounds, fewer where one is enough; 0: none. "
            "[default: 1, 2 where nothing reaches the target, 3 where it is close; --effort quick: 1, thorough: 3; "
            "for a script 1 unless thorough]"
        ),
    ] = None,
    max_workers: Annotated[int | None, typer.Option(help="Leave out larger worker counts.")] = None,
    max_ram: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory that a candidate may take, e.g. 8GiB. [default: all]")
    ] = None,
    max_shm: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Shared memory that a candidate may take, e.g. 1GiB. [default: all]"),
    ] = None,
    cache: Annotated[str, typer.Option(help="State of the page cache before every candidate: warm or cold.")] = "warm",
    timeout: Annotated[
        str | None, typer.Option(help="End a candidate that takes longer, e.g. 3m. [default: from --seconds]")
    ] = None,
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes",
            help="With -- COMMAND: let it change and remove files that exist; without, they stay as they are.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for this run. [default: pipetune-runs/TIME-DATASET]")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Resume the interrupted sweep in this run folder, with its options."),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    progress: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What is shown meanwhile, on standard error. auto: a live view on a terminal, elsewhere lines; lines; "
            "json: an object per line, for programs; none.",
        ),
    ] = "auto",
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Also print each warning, and why decoders were left out that gain nothing."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the order of the candidates, the shuffling and the crops.")] = 0,
) -> None:
    """Measure candidate input pipelines and recommend the cheapest one that keeps the accelerator fed."""
    from pipetune.candidates.varied import names_to_vary, value_of
    from pipetune.cli.output import check_target, result_console, tell_interruption
    from pipetune.cli.parse import value
    from pipetune.cli.progress import observer_of
    from pipetune.cli.sweep_batch import AUTO_BATCH, found_batch_size, parse_batch_size
    from pipetune.cli.sweep_hosts import all_hosts, host_place, serve_this_host, teller
    from pipetune.cli.sweep_run import show
    from pipetune.cli.with_run_file import was_given
    from pipetune.scaling.batch_run import BatchOptions
    from pipetune.sweeping.options import SweepOptions
    from pipetune.sweeping.ranks import device_and_ranks, parse_ranks
    from pipetune.sweeping.script_run import resume_any, start_any
    from pipetune.sweeping.script_setup import uri_of
    from pipetune.units import parse_bytes, parse_duration, parse_names, parse_numbers

    stop_on_sigterm()
    check_target("--json", json_file, "sweep.json")
    observer = observer_of(progress)
    device, rank_count = device_and_ranks(device, value("--ranks", ranks, parse_ranks))
    options = {
        "dataset": dataset or "", "model": model, "target": target, "target_metric": target_metric,
        "backends": value("--backends", backends, parse_names), "workers": value("--workers", workers, parse_numbers),
        "prefetch": value("--prefetch", prefetch, parse_numbers), "image_size": image_size,
        "batch_size": value("--batch-size", batch_size, parse_batch_size),
        "precision": precision, "compile": compile, "ceilings": value("--ceilings", ceilings, parse_numbers),
        "device": device, "seconds": seconds,
        "budget_s": value("--budget", budget, parse_duration), "grid": grid, "cache": cache,
        "timeout_s": value("--timeout", timeout, parse_duration), "seed": seed,
        "vary": value("--vary", vary, names_to_vary),
        "fix": tuple(value("--fix", text, value_of) for text in fix or ()),
        "exact": exact, "cheapest": value("--cheapest", cheapest, parse_names), "max_workers": max_workers,
        "max_ram_bytes": value("--max-ram", max_ram, parse_bytes),
        "max_shm_bytes": value("--max-shm", max_shm, parse_bytes), "blocks": blocks, "effort": effort,
        "allow_writes": allow_writes, "ranks": rank_count, "sync": sync, "bind": bind,
        "augment": augment,
    }  # fmt: skip
    sources = {"--dataset": dataset, "--loader": loader, "--resume": resume}
    _refuse_together(command, sources, out, allow_writes=allow_writes)
    if command:
        options |= {"command": tuple(command), "dataset": uri_of(command)}
    place = host_place(hosts, own=bool(command) or loader is not None)
    if place is not None:
        options["hosts"] = place.hosts
        if place.host:
            raise typer.Exit(serve_this_host(place, progress))
    auto = options["batch_size"] == AUTO_BATCH
    if auto and (command or loader is not None or resume is not None):
        raise UsageError("--batch-size auto is for a data set and a new sweep", hint="write the number")
    # Where the JSON goes to standard output, the text for people goes to standard error.
    to_stderr = json_file == "-"
    console = result_console(stderr=to_stderr)
    try:
        with all_hosts(place, progress) as machines:
            if resume is not None:
                given = {name: chosen for name, chosen in options.items() if was_given(context, _parameter(name))}
                if rank_count != value("--ranks", ranks, parse_ranks):  # of --device 8xa100
                    given["ranks"] = rank_count
                ended = resume_any(resume, given, observer, machines.measure)
            else:
                if auto:
                    options["batch_size"] = found_batch_size(
                        BatchOptions(
                            model=model,
                            image_size=image_size,
                            precision=precision,
                            device=device,
                            seed=seed,
                            compile=compile,
                        ),
                        teller(progress),
                    )
                ended = start_any(SweepOptions(**options), out, observer, loader, machines.measure)  # type: ignore[arg-type]
            machines.stopped(ended.message if ended.stopped else None)
        code = show(ended, console, json_file, verbose=verbose)
    except KeyboardInterrupt as stop:  # before anything was measured
        code = tell_interruption(stop)
    raise typer.Exit(code)


def _refuse_together(
    command: list[str] | None, given: dict[str, str | Path | None], out: Path | None, *, allow_writes: bool
) -> None:  # fmt: skip
    """Refuse what does not go together, and where nothing says what is to be measured.

    Args:
        given: what else says that, by option.
    """
    dataset, loader, resume = given["--dataset"], given["--loader"], given["--resume"]
    if command:
        other = next((f"{name} {value}" for name, value in given.items() if value is not None), None)
        if other is not None:
            raise UsageError(
                f"{other} cannot be combined with a command to tune",
                hint="name one of them: the script has its own data",
            )
    elif allow_writes and resume is None:
        raise UsageError(
            "--allow-writes is for a script", hint="write pipetune sweep --allow-writes -- python train.py"
        )
    elif loader is not None and (dataset is not None or resume is not None):
        raise UsageError(
            f"--loader {loader} takes the place of a data set, and a resumed sweep has its own",
            hint="omit --dataset or --resume",
        )
    elif resume is None and dataset is None and loader is None:
        raise UsageError(
            "no data set was named", hint="try --dataset DIR, --dataset synthetic:caltech256, or -- python train.py"
        )
    if resume is not None and out is not None:
        raise UsageError(
            f"--out {out} cannot be combined with --resume {resume}", hint="a resumed sweep writes to its own folder"
        )


def _parameter(field: str) -> str:
    """Name of the parameter that an option comes from."""
    return field.removesuffix("_s").removesuffix("_bytes")
