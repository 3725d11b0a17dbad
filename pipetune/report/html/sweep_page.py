"""A sweep as one HTML page, light, dark and printable. It loads nothing, and everything in it is escaped. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipetune.augmentation.recipes import RECIPES
from pipetune.candidates.describe import describe
from pipetune.datasets.image_notes import count_noun, describe_audit
from pipetune.records.redact import redact_line
from pipetune.records.summaries import DatasetSummary, WorkloadSummary
from pipetune.records.sweep import Outcome
from pipetune.report.code import code_of_sweep, for_training, settings_for
from pipetune.report.columns import Column, Mark, Surface, cells_of, columns_of, format_interval, mark_of
from pipetune.report.html.page import UNKNOWN, Figure, Header, Row, host_facts, known, render
from pipetune.report.line import Kind, headline, texts
from pipetune.report.notices_text import notice_lines
from pipetune.report.script_text import script_notes, setting_line, to_do
from pipetune.report.set_up_text import describe_set_up
from pipetune.report.sweep_text import capital, conclusion_lines, in_ranks, path_lines, to_be_set
from pipetune.sweeping.result import SweepResult
from pipetune.sweeping.result_json import to_json
from pipetune.units import format_bytes, format_duration, format_rate, format_share

_STATUS = {
    "target_met": ("target met", "good"),
    "target_missed": ("target missed", "warn"),
    "interrupted": ("interrupted", "warn"),
    "failed": ("failed", "bad"),
}


#: Images that did not decode, of which the names are shown.
_MAX_UNDECODABLE_NAMED = 5
_HOST_HEADERS = [
    Header("host", "text"),
    *(Header(name, "number") for name in (
        "rate", "goodput", "data wait", "accelerator idle", "cores", "read from storage", "timed with all others",
    )),
]  # fmt: skip
_RANK_HEADERS = [
    Header(name, "number")
    for name in ("rank", "rate", "goodput", "data wait", "accelerator idle", "waiting for other ranks")
]


def sweep_page(
    result: SweepResult, *, run_name: str, run_folder: str, about: Mapping[str, Any], figures: Sequence[Figure],
    problems: Sequence[str],
) -> str:  # fmt: skip
    """The page of a sweep.

    Args:
        result: of the sweep.
        run_name: the folder's name.
        run_folder: its whole path.
        about: ``run.json``.
        figures: in the order of the page.
        problems: what of the run could not be read.
    """
    recommended = result.recommended
    conclusion = conclusion_lines(result)
    columns = columns_of(Surface.PAGE, result)
    title, kind = _STATUS.get(result.status, (result.status, "warn"))
    return render(
        "sweep.html.j2",
        title=f"{result.dataset.get('name', run_name)} · pipetune sweep",
        headline=headline(conclusion),
        status=title,
        status_kind=kind,
        sentences=[line for line in conclusion if line.kind is not Kind.HEADLINE],
        tiles=_tiles(result),
        settings=None if recommended is None else _settings(result, recommended),
        in_ranks=in_ranks(result),
        code=_code(result, recommended, run_folder),
        headers=[Header(column.header_in(result), "number" if column.numeric else "text") for column in columns],
        sorted_by=next(number for number, column in enumerate(columns) if column.name == "rate"),
        rows=[_row(result, outcome, columns) for outcome in result.ranking],
        figures=figures,
        evidence=_evidence(result),
        rank_headers=_RANK_HEADERS,
        rank_rows=_rank_rows(result),
        host_headers=_HOST_HEADERS,
        host_rows=_host_rows(result),
        path=path_lines(result),
        left_out=result.left_out,
        notices=[*problems, *texts(notice_lines(result)), *_script_notes(result)],
        facts=_facts(result, about),
        versions=sorted((result.host.get("versions") or {}).items()),
        command=redact_line(str(about.get("command") or "")) or None,
        run_name=run_name,
        data=to_json(result),
    )  # fmt: skip


def name_of_chosen(result: SweepResult) -> str:
    """The page's title for the recommended candidate: "nearest" if it misses the target, unless it is left as it is."""
    if result.stays:
        return "Left as it is"
    recommended = result.recommended is not None and mark_of(result, result.recommended) is Mark.RECOMMENDED
    return "Recommended" if recommended else "Nearest to the target"


def _named_outcomes(result: SweepResult) -> list[tuple[str, Outcome]]:
    """The baseline and the recommended candidate, each with its title; one where they are the same."""
    name, chosen = name_of_chosen(result), result.recommended
    if chosen is not None and chosen is result.baseline:
        what = result.untuned_name.removesuffix(" as it is") if result.stays else result.untuned_name
        return [(f"{capital(what)}, {name[:1].lower()}{name[1:]}", chosen)]
    named = ((capital(result.untuned_name), result.baseline), (name, chosen))
    return [(title, outcome) for title, outcome in named if outcome is not None]


def _row(result: SweepResult, outcome: Outcome, columns: tuple[Column, ...]) -> Row:
    cells = [(UNKNOWN if cell.text is None else cell.text, cell.sort) for cell in cells_of(columns, result, outcome)]
    return Row(
        cells=cells, key=outcome.candidate.key, mark=mark_of(result, outcome), best=outcome is result.recommended
    )  # fmt: skip


def _tiles(result: SweepResult) -> list[tuple[str, str, str]]:
    """Name, value and remark of the few numbers that matter."""
    tiles = []
    ceiling = result.ceiling.measurement if result.ceiling else None
    if ceiling is not None:
        several = f"{len(ceiling.ranks)} x " if ceiling.ranks else ""
        tiles.append(("max ingestion rate", format_rate(ceiling.samples_per_s), several + result.accelerator.name))
    for name, outcome in _named_outcomes(result):
        if outcome.measurement is not None:
            goodput = outcome.measurement.goodput
            share = "" if goodput is None else f"{format_share(goodput)} of what the accelerator can take"
            tiles.append((name, format_interval(outcome.measurement), share))
    is_edit = result.recommended is not result.baseline
    if result.speedup is not None and result.speedup_ci95 is not None and is_edit:
        low, high = result.speedup_ci95
        tiles.append(("speed-up", f"{result.speedup:.2f}x", f"95 % interval {low:.2f} to {high:.2f}"))
    return tiles


def _root(result: SweepResult) -> str:
    return str(result.dataset.get("root") or "")


def _settings(result: SweepResult, recommended: Outcome) -> str | None:
    if result.stays:
        return None
    if result.script is not None:
        return None if result.script.loader is None else setting_line(result.script, recommended.candidate)
    if not to_be_set(result):
        return None
    return settings_for(for_training(recommended.candidate, result.accelerator), _root(result))


def _code(result: SweepResult, recommended: Outcome | None, run_folder: str) -> str | None:
    root = _root(result)
    if result.script is not None:
        return "\n".join(to_do(result, run_folder)) or None
    if recommended is None or not to_be_set(result) or not root:
        return None
    return code_of_sweep(result, recommended.candidate, run_folder)


def _script_notes(result: SweepResult) -> list[str]:
    return [] if result.script is None else script_notes(result.script, result.recommended, result.outcomes)


def _evidence(result: SweepResult) -> list[dict[str, Any]]:
    found = []
    for name, outcome in _named_outcomes(result):
        diagnosis = result.diagnose(outcome)
        if diagnosis is not None:
            found.append({"name": f"{name}: {describe(outcome.candidate)}", "diagnosis": diagnosis})
    return found


def _rank_rows(result: SweepResult) -> list[Row]:
    """The recommended candidate's ranks; empty: there is one."""
    m = None if result.recommended is None else result.recommended.measurement
    return [
        Row(cells=[
            (share.rank, share.rank), (format_rate(share.samples_per_s), share.samples_per_s),
            (UNKNOWN if share.goodput is None else format_share(share.goodput), share.goodput),
            *((format_share(part), part) for part in
              (share.data_wait_frac, share.accelerator_idle_frac, share.others_wait_frac)),
        ])
        for share in (() if m is None else m.ranks)
    ]  # fmt: skip


def _host_rows(result: SweepResult) -> list[Row]:
    """The hosts that measured the recommended candidate at the same time; empty: there is one."""
    m = None if result.recommended is None else result.recommended.measurement
    return [
        Row(cells=[
            (share.name, share.name), (format_rate(share.samples_per_s), share.samples_per_s),
            (UNKNOWN if share.goodput is None else format_share(share.goodput), share.goodput),
            (format_share(share.data_wait_frac), share.data_wait_frac),
            (format_share(share.accelerator_idle_frac), share.accelerator_idle_frac),
            (UNKNOWN if share.cores_used is None else f"{share.cores_used:.1f}", share.cores_used),
            (UNKNOWN if share.read_bytes_per_s is None else f"{share.read_bytes_per_s / 1e6:,.0f} MB/s",
             share.read_bytes_per_s),
            (format_share(share.together_frac), share.together_frac),
        ])
        for share in (() if m is None else m.hosts)
    ]  # fmt: skip


def _ranks(work: WorkloadSummary) -> str | None:
    count = work.get("ranks", 1)
    if count < 2:
        return None
    ends = "their steps end together" if work.get("sync") == "step" else "none waits for another"
    bound = {"even": ", each bound to its share of the cores", "numa": ", each bound to its NUMA node's cores"}
    return f"{count}, {ends}{bound.get(str(work.get('bind')), '')}"


def _undecodable(data: DatasetSummary) -> str | None:
    """The first images that a decoder met and could not decode during the sweep; ``None``: there was none."""
    paths = data.get("undecodable") or []
    more = f" and {len(paths) - _MAX_UNDECODABLE_NAMED:,} more" if len(paths) > _MAX_UNDECODABLE_NAMED else ""
    return ", ".join(map(repr, paths[:_MAX_UNDECODABLE_NAMED])) + more if paths else None


def _facts(result: SweepResult, about: Mapping[str, Any]) -> list[tuple[str, Any]]:
    data, work = result.dataset, result.workload
    images, audit = data.get("images"), data.get("audit")
    facts = [
        ("data set", data.get("name")), ("folder", data.get("root") if images else None),
        ("images", None if not images else f"{images:,} in {count_noun(data.get('classes', 0), 'class', 'classes')}"),
        ("of what was found", None if audit is None else describe_audit(audit)),
        ("left out, because they do not decode", _undecodable(data)),
        ("mean file", format_bytes(round(data["mean_bytes"])) if data.get("mean_bytes") else None),
        ("median size", f"{data['median_width_px']} x {data['median_height_px']} px"
                        if data.get("median_width_px") else None),
        ("accelerator", result.accelerator.name), ("source of its rate", result.accelerator.source),
        ("ranks", _ranks(work)), ("model", work.get("model")), ("precision", work.get("precision")),
        ("compiled", "by torch.compile" if work.get("compiled") else None),
        ("batch size", work.get("batch_size")),
        ("crop", f"{work['image_size_px']} px" if work.get("image_size_px") else None),
        ("augmentation", RECIPES[work["augment"]].short if work.get("augment") in RECIPES else None),
        ("page cache", work.get("cache")), ("seed", work.get("seed")),
        ("target", f"{result.goal.target:.0%} {result.goal.metric}"),
        ("measurements", f"{len(result.outcomes)} in {format_duration(result.seconds)}"),
        ("set-up", describe_set_up(result)),
        *host_facts(result.host), ("started", about.get("started")), ("pipetune", about.get("pipetune")),
    ]  # fmt: skip
    return known(facts)
