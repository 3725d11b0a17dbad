"""What a stored result says, in a few words: one function per benchmark."""

from __future__ import annotations

from statistics import fmean, median

from benchmarks.measuring.emulated_rates import MAX_ERROR
from benchmarks.scripts.own_script import Found
from docs.parts.results import Stored, interval, outcomes, percent, span
from docs.parts.robustness_statements import none_or
from pipetune.augmentation.recipes import MIXUP


def noise_floor(result: Stored) -> str:
    covered = sum(one["covered"] for one in result["candidates"].values())
    total = sum(len(one["ci95"]) for one in result["candidates"].values())
    said = f"{covered} of {total} intervals hold the mean of all repeats"
    if "paper" not in result:
        return said
    early = result["arms"]["ends early"]["candidates"].values()
    asked = sum(len(one["ci95"]) for one in early)
    worst = min(arm[stage]["coverage"] for arm in result["paper"].values() for stage in ("looks", "blocks"))
    wide = [name for name, arm in result["arms"].items() if not arm["honest_width"]]
    missed = f"; missed: wider than twice what the spread calls for ({'; '.join(wide)})" if wide else ""
    return (
        f"{said}, {sum(one['covered'] for one in early)} of {asked} where the measurement may end early; "
        f"of simulated ones at least {percent(worst)}{missed}"
    )


def explain_closure(result: Stored) -> str:
    loaders, cases = result["loaders"], result["cases"]
    worst = max(abs(one["closes_frac"]) for one in loaders.values())
    wrong = [name for name, one in cases.items() if not one["right"]]
    missed = f" (not: {', '.join(wrong)})" if wrong else ""
    return (
        f"{result['closed']} of {len(loaders)} loaders close within 10 % (the worst within {percent(worst)}); the "
        f"limit is named right in {result['right']} of {len(cases)} cases{missed}"
    )


def whatif_error(result: Stored) -> str:
    near, far = result["one thing, up to twice"], result["beyond"]
    return (
        f"of {result['limited']} questions that the loader limits, predictions are off by {percent(near['median'])} in "
        f"the median and by at most {percent(near['quantile90'])} in 90 % where one thing changes by up to twice, and "
        f"by {percent(far['median'])} and {percent(far['quantile90'])} beyond; {percent(result['inside'])} lie inside "
        f"their intervals, and what sets the pace is named right in {percent(result['right'])}" + broken_text(result)
    )


def emulated_rates(result: Stored) -> str:
    points = result["points"]
    inside = sum(point["inside"] for point in points)
    missed = "missed: " if result["largest_error"] > MAX_ERROR else ""
    return (
        f"{inside} of {len(points)} points lie inside their interval; {missed}the largest error is "
        f"{percent(result['largest_error'])}, where at most {percent(MAX_ERROR)} is promised"
    )


def synthetic_match(result: Stored) -> str:
    ratios = result["ratios"]
    return (
        f"{ratios['bytes per pixel']:.2f} of their bytes per pixel, "
        f"{ratios['decode time per megapixel']:.2f} of their decode time"
    )


def sampler_overhead(result: Stored) -> str:
    cost = span((result[name]["core_frac"] for name in ("cost_light", "cost_loaded")), lambda share: percent(share, 2))
    rate, psutil = result["throughput"], result["parsers"]["readers"]["psutil, same pace"]
    return (
        f"{cost} of a core; the processes work at {rate['ratio']:.3f} ({interval(rate['ratio_ci95'], 3)}) of their "
        f"rate without it; psutil takes {psutil['ratio']:.2f} ({interval(psutil['ratio_ci95'])}) times its CPU time "
        "for the same facts"
    )


def nvml_pace(result: Stored) -> str:
    told = [driver["problem"] is not None for driver in result["drivers"]]
    asleep = {
        driver["call_us"]: driver["calls"]["nvmlDeviceGetUtilizationRates"] / driver["seconds"]
        for driver in result["drivers"]
        if not driver["keeps_samples"] and not driver["spin_us"]
    }
    missed = "" if round(asleep[1000], 1) >= 10 else "; missed: fewer than 10, and not said"
    return (
        f"{asleep[1000]:.1f} a second where each call sleeps for 1 ms, {asleep[3000]:.1f} with 3 ms; too slow is said "
        f"of {sum(told)} of {len(told)} drivers{missed}"
    )


def startup(result: Stored) -> str:
    found = result["commands"]["pipetune --help"]
    return f"{found['median_s']:.2f} s, {found['ratio_to_plain_python']:.1f} times an empty Python's start"


def many_files(result: Stored) -> str:
    times = span(result["listing_per_find"], lambda value: f"{value:.1f}")
    memory = max(result["bytes_per_file"])
    return f"{result['files']:,} files: {times} times `find`'s time, {memory:.0f} bytes of memory per file"


def plotting(result: Stored) -> str:
    peak = max(one["bytes"] for one in result["ours"]) / 1e6
    times = span(result["ratios"], lambda value: f"{value:.2f}")
    return (
        f"{result['readings']:,} readings: {times} of the time in which pandas reads them, {peak:.0f} MB, "
        f"{result['missing'] or 'no'} stalls lost"
    )


def watch_verdicts(result: Stored) -> str:
    return f"{result['jobs']} jobs, {len(result['rows'])} windows: {outcomes(result['rows'], 'outcome')}"


def watch_overhead(result: Stored) -> str:
    cost = span((one["core_frac"] for one in result["cost"]), lambda share: percent(share, 2))
    peak = max(one["rss_bytes"] for one in result["cost"]) / 1e6
    first_s = max(one["start_cpu_s"] for one in result["cost"])
    rate = result["rate"]
    low, high = rate["ratio_ci95"]
    return (
        f"slowed by {percent(1 - rate['ratio'], 2)} ({percent(1 - high, 2)} to {percent(1 - low, 2)}); watching takes "
        f"{cost} of a core and {peak:.0f} MB, and before that at most {first_s:.1f} s of CPU time in all"
    )


def loaders(result: Stored) -> str:
    missed = [_missed(one, text) for one in result["results"] for text in one["broken"]]
    text = (
        f"{_best_peer(result, 'pipetune exact')} times the rate of the fastest other library with an antialiased "
        f"resize, {_best_peer(result, 'pipetune approximate')} times that of the fastest of all other libraries"
    )
    return text + (f"; missed: {'; '.join(missed)}" if missed else "")


def _missed(result: Stored, text: str) -> str:
    """One part of the promise that does not hold for these images and batches."""
    from benchmarks.loaders.loaders import MIN_BOUND

    ours, _, is_bound = text.partition(" / bound ")
    images = f"{result['profile']} as {result['output']}"
    if not is_bound:
        return f"with {images}, {text}"
    found = result["ratios"][ours]["bound"]
    return (
        f"with {images}, {found['ratio']:.2f} ({interval(found['ci95'])}) of the rate of one decoding thread times "
        f"the cores, where at least {MIN_BOUND:g} is promised"
    )


def _best_peer(result: Stored, ours: str) -> str:
    return span((one["ratios"][ours]["best_peer"]["ratio"] for one in result["results"]), lambda value: f"{value:.2f}")


def training_loss(result: Stored) -> str:
    ours = [one for name, one in result["loaders"].items() if name != "reference"]
    differences = span((one["difference"] for one in ours), lambda value: f"{value:+.3f}")
    ends = span((end for one in ours for end in one["difference_ci99"]), lambda value: f"{value:+.3f}")
    near = sum(one["difference_ci99"][0] <= 0 <= one["difference_ci99"][1] for one in ours)
    return (
        f"the loss of {result['loaders']['reference']['mean']:.3f} changes by {differences} (99 % intervals within "
        f"{ends}, zero inside for {near} of {len(ours)} loaders)"
    )


def search_regret(result: Stored) -> str:
    measured = next(t for name, t in result["tables"].items() if "replayed" in name)["pipetune"]
    return (
        f"on measured grids, the recommendation misses at most {percent(measured['regret_p95'], 1)} of the reachable "
        "goodput in 95 % of searches (goodput above the target does not count), and uses at most one core, or a tenth, "
        f"more than the cheapest sufficient one in {percent(measured['near_cores'])}; a search takes "
        f"{percent(measured['time_median'])} of the grid's time (median)" + broken_text(result)
    )


def broken_text(result: Stored) -> str:
    """What of the promise did not hold."""
    return f". Missed: {'; '.join(result['broken'])}" if result.get("broken") else ""


def edits(result: Stored) -> str:
    useless = [row["edits"] for row in result["rows"] if "nothing helps" in row["what"] or "edits harm" in row["what"]]
    clear = [row["edits"] for row in result["rows"] if "1.3 times" in row["what"] and row["noise"] <= 0.05]
    return (
        "in simulated sweeps an edit that gains nothing or harms is recommended in at most "
        f"{percent(max(useless), 1)}, and one that gains 1.3 times in at least {percent(min(clear), 1)} where repeats "
        "scatter by up to 5 %" + broken_text(result)
    )


def no_gain(result: Stored) -> str:
    scripts = result["scripts"].values()
    kept = sum(not one["wrong"] for one in scripts)
    return f"{kept} of {len(scripts)} scripts were left as they are" + broken_text(result)


def stated_gain(result: Stored) -> str:
    scripts = result["scripts"].values()
    low, high = (best(one["stated"] for one in scripts) for best in (min, max))
    return (
        f"in {result['inside']} of {result['pairs']} pairs of trainings, as the script was and tuned, the gain was "
        f"within the stated interval; {len(scripts)} scripts, gains of {low:.2f} to {high:.2f} times"
        + broken_text(result)
    )


def search_stability(result: Stored) -> str:
    killed = [one for one in result["searches"] if one["kind"] == "killed"]
    disturbed = [one for one in result["searches"] if one["kind"] == "disturbed"]
    twice = sum(len(one["measured_twice"]) for one in killed)
    doubtful = sum(bool(one["doubts"]) for one in disturbed)
    return (
        f"{len(killed)} sweeps killed {killed[0]['kills']} times each: {none_or(twice)} measured twice; {doubtful} of "
        f"{len(disturbed)} sweeps on a disturbed machine said that they were uncertain"
    )


def time_to_recommendation(result: Stored) -> str:
    parts = []
    for rate, tools in result["rates"].items():
        seconds, goodput = median(tools["pipetune"]["seconds"]), tools["pipetune"]["goodput"]
        parts.append(f"{int(rate):,} samples/s: {seconds:.0f} s, {percent(goodput)} goodput")
    return "; ".join(parts) + broken_text(result)


def bench_process(result: Stored) -> str:
    return (
        f"a fork's rate is {result['median_ratio']:.3f} of a new process's in the median; "
        f"{result['within']} of {result['of']} candidates are within their stated interval"
    )


def own_script(result: Stored) -> str:
    tuned = [one for one in result["scripts"].values() if one["of_best"]]
    inside = sum(Found(gains=one["gains"], interval=tuple(one["interval"])).inside for one in tuned)
    best, by_hand = [median(one["of_best"]) for one in tuned], [ratio for one in tuned for ratio in one["by_hand"]]
    refused = len(result["scripts"]) - len(tuned)
    seconds = [ending["seconds"] for ending in result["endings"].values()]
    return (
        f"the gain in training is what was stated for {inside} of {len(tuned)} scripts"
        + (f" ({refused} more cannot be tuned, and a sweep says so)" if refused else "")
        + f"; sweeps of {len(seconds)} awkward scripts take {min(seconds):.0f} to {max(seconds):.0f} s; scripts reach "
        f"{percent(min(best))} or more of the best of a grid by hand ({percent(median(best))} in the median); with "
        f"`pipetune run` the rate is {median(by_hand):.3f} of that with settings written by hand" + broken_text(result)
    )


def scaling_prediction(result: Stored) -> str:
    host, hosts = result["one_host"], result["many_hosts"]
    return (
        f"ranks on one host: predictions are off by {percent(host['median'])} in the median, and "
        f"{percent(host['within'])} of {len(host['cases'])} by at most 10 %; published GPUs on up to 16 hosts: by "
        f"{percent(hosts['median'])}, {percent(hosts['within'])} of {len(hosts['cases'])} by at most 10 %"
        + ("" if result["promise_holds"] else "; missed")
    )  # fmt: skip


def batch_size_search(result: Stored) -> str:
    cases = result["cases"]
    below = max(1 - case["largest"] / case["bisection"] for case in cases)
    how = f"at most {percent(below)} below bisection's" if below > 0 else "never below bisection's"
    most = max(case["processes"] for case in cases)
    failures = max(case["failures"] for case in cases)
    others = "/".join(str(case["bisection_processes"]) for case in cases)
    return (
        f"on the stand-in for the CUDA runtime, the largest batch of {len(cases)} models is {how}, "
        f"with at most {most} processes ({others} with bisection) and {failures} out of memory"
        + ("" if result["promise_holds"] else "; missed")
    )  # fmt: skip


def array_task(result: Stored) -> str:
    beside = result["beside_s"]
    missed = "" if result["promise_holds"] else ", where at most 3 s are promised"
    return f"{median(beside):.1f} s in the median of {len(beside)} tasks, {max(beside):.1f} s at most{missed}"


def numpy_arrays(result: Stored) -> str:
    shares = [median(case["ratios"]) for case in result["cases"]]
    planes = [median(case["beside_planes"]) for case in result["cases"]]
    missed = "" if result["promise_holds"] else "; missed: less than 0.97"
    return (
        f"{span(shares, '{:.2f}'.format)} of the rate of the same threads that make tensors{missed}; "
        f"{span(planes, '{:.2f}'.format)} of tensors with a plane for each colour"
    )


def augmentation(result: Stored) -> str:
    cases = {case["recipe"]: median(case["ratios"]) for case in result["cases"]}
    single = [ratio for recipe, ratio in cases.items() if recipe != MIXUP]
    missed = "" if result["promise_holds"] else "; missed: more than 1.1"
    return (
        f"{span(single, '{:.2f}'.format)} times their CPU time in a worker, and {cases[MIXUP]:.2f} times for MixUp, "
        f"which is done in place{missed}"
    )


def ranks_truth(result: Stored) -> str:
    bounds, cases = result["bound"]["cases"], result["recommended"]["cases"]
    near = sum(case["holds"] for case in bounds)
    shares = [_of_best(case) for case in cases]
    lost = max(case["one_rank_answer_loses"] for case in cases)
    off = max(abs(fmean(case["measured"]) / case["simulated"] - 1) for case in result["waiting"]["cases"])
    return (
        f"{near} of {len(bounds)} node rates are within 5 % of what accelerators or cores allow; what is recommended "
        f"for ranks reaches {percent(min(shares))} or more of the best, where the answer for one rank loses up to "
        f"{percent(lost)}; waiting for each other is within {percent(off)} of a simulation"
        + ("" if result["promise_holds"] else "; missed")
    )  # fmt: skip


def _of_best(case: Stored) -> float:
    """Goodput of what was recommended, at most the target, as a share of the best of the grid."""
    reached = {key: min(0.9, median(values)) for key, values in case["goodput"].items()}
    return reached[case["for_ranks"]] / reached[case["best"]]


def many_hosts(result: Stored) -> str:
    case = result["cases"][-1]
    return (
        f"host 1 of {case['hosts']} takes {100 * median(case['cores']):.1f} % of a core for the others, and a "
        f"measurement {median(case['later_s']):.2f} s more" + ("" if result["promise_holds"] else "; missed")
    )
