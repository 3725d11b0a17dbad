"""Larger tables of the page of results: other libraries, other searches, other rules."""

from __future__ import annotations

from collections.abc import Callable

from docs.parts.markdown import table
from docs.parts.results import Stored, interval, outcomes, percent, stored


def _peers() -> str:
    """pipetune's loaders beside other libraries, per data set and kind of batch."""
    rows = []
    for one in stored("loaders")["results"]:
        for ours in ("pipetune exact", "pipetune approximate"):
            found = one["ratios"][ours]
            peer, usual, bound = found["best_peer"], found["peers"]["torch + torchvision v2"], found["bound"]
            rows.append([
                f"{one['profile']}, {one['output']}",
                ours.removeprefix("pipetune "),
                *(f"{ratio['ratio']:.2f} ({interval(ratio['ci95'])})" for ratio in (peer, usual, bound)),
                _library(peer["to"]),
            ])  # fmt: skip
    lines = [
        table(
            ["images, batches", "pixels", "to the fastest other library", "to a tuned `DataLoader`", "to the bound",
             "that library"],
            rows, "llrrrl",
        )
    ]  # fmt: skip
    again = stored("loaders").get("repeated_alone")
    if again:
        figures = "; ".join(
            f"{name.removeprefix('pipetune ').replace(' / ', ' to the ')} {value['ratio']:.2f} "
            f"({interval(value['ci95'])})"
            for name, value in again.items()
            if isinstance(value, dict)
        )
        lines.append(
            f"The ratios of {again['profile']} as {again['output']}, one of which is below what is promised, were "
            f"measured again by themselves, in {again['rounds']} rounds: {figures}."
        )
    return "\n\n".join(lines)


def _library(name: str) -> str:
    """A library as a reader knows it; the benchmark's short names end with ``aa`` for an antialiased resize."""
    library, aa, _ = name.partition(" aa")
    return f"{library}, antialiased" if aa else library


_SEARCHES = {
    "pipetune": "**pipetune**",
    "pipetune, thorough": "**pipetune --effort thorough**",
    "the whole grid": "all candidates, with the same noise",
}


def _rivals() -> str:
    """The search beside other ways to search."""
    parts = []
    for name, found in stored("search_regret")["tables"].items():
        rows = [
            [
                _SEARCHES.get(search, search),
                " / ".join(f"{100 * one[key]:.1f}" for key in ("regret_median", "regret_p95", "regret_max")) + " %",
                " / ".join(f"{100 * one[key]:.1f}" for key in ("time_median", "time_p90")) + " %",
                percent(one["called_right"])
                + (f" ({one['undecided']:.0f} not decided)" if one.get("undecided") else ""),
                percent(one["no_more_cores"]),
                percent(one["near_cores"]) if search.startswith("pipetune") else "",
            ]
            for search, one in found.items()
        ]
        count = next(iter(found.values()))["worlds"]
        title = name.replace("machines on paper", "simulated machines")
        heading = f"**{title[:1].upper()}{title[1:]}** ({count} searches)"
        parts.append(
            heading
            + "\n\n"
            + table(
                [
                    "search",
                    "regret: median / 95 % / max",
                    "time: median / 90 %",
                    "judged right",
                    "no more cores",
                    "or what its effort allows",
                ],
                rows,
                "lrrrrr",
            )
        )
    return "\n\n".join(parts)


def _other_rules() -> str:
    """The rules of other tools on the same windows."""
    rows = stored("watch_verdicts")["rows"]
    found = [
        ["**pipetune watch**", outcomes(rows, "outcome")],
        ["SageMaker Debugger's rules", outcomes(rows, "sagemaker_outcome")],
        ["xprof's rules (the job's code has to be changed for them)", outcomes(rows, "xprof_outcome")],
    ]
    return table(["rules", "on the same windows"], found)


def _losses() -> str:
    """The loss after training through each loader."""
    result = stored("training_loss")
    rows = [
        [name, f"{one['mean']:.3f}", _difference(one) if name != "reference" else ""]
        for name, one in result["loaders"].items()
    ]
    text = table(["loader", "mean loss", "difference to the reference (99 % interval)"], rows, "lrr")
    other = result.get("other_seeds_by_hand")
    if not other:
        return text
    return (
        f"{text}\n\n{result['seeds']} seeds, {result['epochs']} epochs each. All loaders draw the same crops, so their "
        f"differences move together; {other['seeds']} other seeds of {other['loader']} differ by "
        f"{other['difference']:+.4f} (standard error {other['standard_error']:.4f})."
    )


def _difference(loader: Stored) -> str:
    return f"{loader['difference']:+.3f} ({interval(loader['difference_ci99'], 3)})"


def _pillow_simd() -> str:
    """Pillow-SIMD beside Pillow."""
    result = stored("pillow_simd")
    ratios = ", ".join(f"{ratio:.2f} ({name.removeprefix('w')} workers)" for name, ratio in result["ratios"].items())
    return f"Pillow-SIMD decoded {ratios} times as fast as Pillow in one sweep of real photographs."


FURTHER: dict[str, tuple[Callable[[], str], ...]] = {
    "loaders": (_peers, _losses, _pillow_simd),
    "search": (_rivals,),
    "watch": (_other_rules,),
}
