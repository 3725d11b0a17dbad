"""What stored results of robustness benchmarks say, in a few words: one function per benchmark."""

from __future__ import annotations

import re

from docs.parts.results import Stored


def leaks(result: Stored) -> str:
    left = [name for end in result["ends"].values() for names in end["left"].values() for name in names]
    candidates = sum(end["candidates"] for end in result["ends"].values())
    names = ", ".join(re.sub(r"^\d+ ", "", name) for name in left)
    missed = f"missed: {len(left)} left behind ({names})" if left else "nothing left"
    return f"{candidates} candidates, {result['processes_seen']} processes: {missed}"


def formats(result: Stored) -> str:
    failed = len(result["failures"])
    library = "streaming's own" if result["streaming"] else "handwritten"
    return (
        f"{result['cases']} shards and folders of them ({library} MDS shards): {result['equal']} equal, "
        f"{result['told']} told, {f'missed: {failed} others' if failed else 'no silent difference'}"
    )


def fuzz(result: Stored) -> str:
    found = len(result["findings"])
    return (
        f"{result['iterations']:,} damaged images, {result['crops'] + result['filled']:,} of them decoded: "
        f"{'nothing found' if not found else f'missed: {found} findings'}; slowest image {result['slowest_s']:.1f} s"
    )


def writes(result: Stored) -> str:
    endings = [ending for ending in result["endings"] if ending["ways"]]
    mechanisms = list(dict.fromkeys(ending["mechanism"] for ending in endings))
    harmed = sum(len(ending["harmed"]) for ending in endings)
    unnamed = sum(len(ending["unnamed"]) for ending in endings)
    ways, ends = max(ending["ways"] for ending in endings), len({ending["end"] for ending in endings})
    return (
        f"{ways} ways to write, {ends} ways to end, by {', '.join(mechanisms)}: "
        f"{f'missed: {harmed} files harmed' if harmed else 'no file harmed'}, "
        f"{f'missed: {unnamed} not named' if unnamed else 'each named'}"
    )


def resume(result: Stored) -> str:
    run = result["runs"][0]
    rates, outside = len(run["ratios"]), run["outside_intervals"]
    return (
        f"killed {run['kills']} times: {none_or(run['measured_twice'])} measured twice, "
        f"{none_or(run['swapped_pairs'])} ranked in another order, {rates - outside} of {rates} rates "
        "inside their interval"
    )


def none_or(number: int) -> str:
    """A count in words, where it is zero."""
    return str(number) if number else "none"
