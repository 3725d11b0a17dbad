"""What pipetune promises, and what was measured of it.

A statement is a function of a stored result and of nothing else: it changes when a benchmark is run again, and cannot
be made without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.catalogue import BENCHMARKS
from docs.parts import comparisons, pack_statements, robustness_statements, statements
from docs.parts.markdown import code, folded, table
from docs.parts.results import Missing, Stored, stored

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Something that pipetune promises, and what was measured of it."""

    text: str
    benchmark: str
    measured: Callable[[Stored], str]
    readme: bool = False
    """It is among the few that the README names."""

    @property
    def script(self) -> Path:
        """The program that measures it, below ``benchmarks/``."""
        return next(Path(one.path) for one in BENCHMARKS if one.name == self.benchmark)

    def statement(self) -> str:
        """What the stored result says; of a shortened run, that it was one."""
        try:
            result = stored(self.benchmark)
        except Missing:
            return "not measured yet"
        return self.measured(result) + (" (shortened run)" if result["quick"] else "")


PROMISES: dict[str, tuple[Promise, ...]] = {
    "measuring": (
        Promise(
            text="A candidate is as fast in a fork as in a new process",
            benchmark="bench_process", measured=statements.bench_process,
        ),
        Promise(
            text="The stated 95 % interval covers the truth in about 95 % of repeats",
            benchmark="noise_floor", measured=statements.noise_floor, readme=True,
        ),
        Promise(
            text="Goodput is correct for loaders slower and faster than the accelerator",
            benchmark="emulated_rates", measured=statements.emulated_rates, readme=True,
        ),
        Promise(
            text="Synthetic photographs are as large and as slow to decode as real ones",
            benchmark="synthetic_match", measured=statements.synthetic_match,
        ),
        Promise(
            text="The stages of a loader add up to the whole, and what was made to be slow is named",
            benchmark="explain_closure", measured=statements.explain_closure, readme=True,
        ),
        Promise(
            text="Rates with other cores, workers, storage, accelerators, ranks and images are predicted",
            benchmark="whatif_error", measured=statements.whatif_error,
        ),
    ),
    "search": (
        Promise(
            text="The search finds the cheapest sufficient loader in a small part of the time that measuring all takes",
            benchmark="search_regret", measured=statements.search_regret, readme=True,
        ),
        Promise(
            text="Where PyTorch's default suffices, a sweep ends within 20 s; otherwise within 60 to 90 s",
            benchmark="time_to_recommendation", measured=statements.time_to_recommendation, readme=True,
        ),
        Promise(
            text="A search that is killed and resumed, or disturbed, recommends the same or says that it is uncertain",
            benchmark="search_stability", measured=statements.search_stability,
        ),
        Promise(
            text="A change of settings is recommended only where it gains or saves, and a clear gain is recommended",
            benchmark="edits", measured=statements.edits,
        ),
    ),
    "loaders": (
        Promise(
            text="The loaders that pipetune opens are ahead of other libraries on the same cores",
            benchmark="loaders", measured=statements.loaders, readme=True,
        ),
        Promise(
            text="A model trains as well through `open_loader` as through a usual loader",
            benchmark="training_loss", measured=statements.training_loss, readme=True,
        ),
        Promise(
            text="A loader of numpy arrays, which needs no torch, is as fast as one of tensors",
            benchmark="numpy_arrays", measured=statements.numpy_arrays,
        ),
        Promise(
            text="Augmenting images with draws of their own takes no longer than torchvision's classes take",
            benchmark="augmentation", measured=statements.augmentation,
        ),
    ),
    "scripts": (
        Promise(
            text="Tuning an unmodified training script gains what it states, and changes nothing else",
            benchmark="own_script", measured=statements.own_script,
        ),
        Promise(
            text="No edit is recommended for a script in which nothing helps, or in which edits harm",
            benchmark="no_gain", measured=statements.no_gain,
        ),
        Promise(
            text="The gain that is stated for an edit holds in training, within its interval",
            benchmark="stated_gain", measured=statements.stated_gain,
        ),
    ),
    "scaling": (
        Promise(
            text="Rates with more accelerators and hosts than were measured are predicted",
            benchmark="scaling_prediction", measured=statements.scaling_prediction,
        ),
        Promise(
            text="Ranks together are as fast as the host allows, and what is recommended for them is right for them",
            benchmark="ranks_truth", measured=statements.ranks_truth,
        ),
        Promise(
            text="Many hosts that measure together cost the first one next to nothing",
            benchmark="many_hosts", measured=statements.many_hosts,
        ),
        Promise(
            text="The largest batch that fits is found in a few processes",
            benchmark="batch_size_search", measured=statements.batch_size_search,
        ),
        Promise(
            text="A task of a job array takes little time beside its measurements",
            benchmark="array_task", measured=statements.array_task,
        ),
    ),
    "packing": (
        Promise(
            text="Packed images load as much faster as the plan says",
            benchmark="pack_gain", measured=pack_statements.pack_gain,
        ),
        Promise(
            text="Images are packed faster than by other packers on the same cores",
            benchmark="pack_peers", measured=pack_statements.pack_peers,
        ),
        Promise(
            text="A pack that is killed at random moments and resumed has the bytes of one that was left alone",
            benchmark="pack_resume", measured=pack_statements.pack_resume,
        ),
        Promise(
            text="Packing takes little memory, however many images there are",
            benchmark="pack_many", measured=pack_statements.pack_many,
        ),
    ),
    "watch": (
        Promise(
            text="`watch` names the right cause of jobs whose cause is known",
            benchmark="watch_verdicts", measured=statements.watch_verdicts, readme=True,
        ),
        Promise(
            text="A watched job is slowed by less than 0.5 % (median), and watching takes less than 0.5 % of a core "
            "after the first 40 s, in which the first stacks are taken",
            benchmark="watch_overhead", measured=statements.watch_overhead, readme=True,
        ),
    ),
    "overhead": (
        Promise(
            text="The sampler takes less than 1 % of a core at 10 readings a second of 16 processes",
            benchmark="sampler_overhead", measured=statements.sampler_overhead,
        ),
        Promise(
            text="A slow NVML still tells the GPU's utilisation 10 times a second, or the sampler says that it cannot "
            "(fake NVML)",
            benchmark="nvml_pace", measured=statements.nvml_pace,
        ),
        Promise(
            text="`pipetune --help` answers in less than 0.25 s",
            benchmark="startup", measured=statements.startup,
        ),
        Promise(
            text="A million files are listed quickly and in little memory",
            benchmark="many_files", measured=statements.many_files,
        ),
        Promise(
            text="A run with a million readings is loaded and drawn faster than pandas reads them, in less than 500 MB",
            benchmark="plotting", measured=statements.plotting,
        ),
    ),
    "robustness": (
        Promise(
            text="Candidates that are ended by force leave no process, memory, file or descriptor behind",
            benchmark="leaks", measured=robustness_statements.leaks, readme=True,
        ),
        Promise(
            text="A sweep that is killed at random moments and resumed ends like one that was left alone",
            benchmark="resume", measured=robustness_statements.resume, readme=True,
        ),
        Promise(
            text="After a sweep of a script no byte of an earlier file differs, and each new or changed file is named",
            benchmark="writes", measured=robustness_statements.writes,
        ),
        Promise(
            text="No damaged JPEG makes jpeg-roi's C code touch memory that is not its own, leak, overflow or hang",
            benchmark="fuzz", measured=robustness_statements.fuzz,
        ),
        Promise(
            text="Every shard has its own library's counts and labels, or one line says why not",
            benchmark="formats", measured=robustness_statements.formats,
        ),
    ),
}  # fmt: skip


def promises() -> str:
    """The promises that the README names, with what was measured."""
    rows = [[promise.text, promise.statement()] for group in PROMISES.values() for promise in group if promise.readme]
    return table(["promise", "measured"], rows)


def section(name: str) -> str:
    """One subject of the page of results: its promises, their figures, machine and date, and further tables."""
    rows = [[promise.text, promise.statement(), code(promise.script)] for promise in PROMISES[name]]
    parts = [table(["promise", "measured", "script"], rows), *(make() for make in comparisons.FURTHER.get(name, ()))]
    return "\n\n".join([*parts, _origin([promise.benchmark for promise in PROMISES[name]])])


def _origin(names: list[str]) -> str:
    lines = []
    for name in names:
        try:
            result = stored(name)
        except Missing:
            continue
        machine = result["machine"]
        when = datetime.fromisoformat(result["date"]).date()
        versions = ", ".join(f"{package} {machine['versions'][package]}" for package in ("torch", "numpy", "pillow"))
        lines.append(
            f"`{result['file']}`: {when:%Y-%m-%d}, {machine['cores_usable']:g} cores of an {machine['cpu_model']}, "
            f"{machine['memory_total_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel'].split('-')[0]}, "
            f"Python {machine['python']}, {versions}"
        )
    return folded("Machine, date and file of these results", "\n".join(f"- {line}" for line in lines))
