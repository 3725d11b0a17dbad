"""Records the examples of the manual, and the pictures of them, on a quiet machine: ``python -m docs.record``.

It runs a real sweep and a real watch, keeps their results in ``benchmarks/results/examples`` (without timelines, and
without names of this machine or its folders) and draws ``docs/assets/*.png``. It needs what ``make demo`` installs, the
extra ``notebook``, jpeg-roi (``pipetune doctor --install jpeg-roi``), Chromium, and for the live view pyte, which
nothing else here needs (``pip install pyte``).

    python -m docs.record sweep     one minute; also the timelines of the default and of the recommended loader
    python -m docs.record script    one minute
    python -m docs.record explain   two minutes
    python -m docs.record ranks     two minutes
    python -m docs.record whatif    a minute, of the kept explanation
    python -m docs.record watch     one minute
    python -m docs.record pictures  seconds: the pictures of the kept sweeps alone, after a change of printed words
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "benchmarks" / "results" / "examples"
ASSETS = ROOT / "docs" / "assets"
COLUMNS, LINES = 122, 34
#: What ``make demo`` runs.
SWEEP = (
    "sweep", "--dataset", "synthetic:caltech256?n=1500", "--model", "resnet50", "--device", "emulated:a100-tf32",
    "--target", "0.9", "--prefetch", "2", "--seconds", "3",
)  # fmt: skip
#: The usual loader of as many workers as cores, stage by stage.
EXPLAIN = ("explain", "--dataset", "synthetic:caltech256?n=4000", "--device", "emulated:a100-tf32")
#: Four processes that share the cores.
RANKS = (
    "sweep", "--dataset", "synthetic:caltech256?n=4000", "--ranks", "4", "--device", "emulated:500", "--batch-size",
    "32", "--backends", "pillow,opencv,jpeg-roi",
)  # fmt: skip
#: Of an explanation of the same loader beside an accelerator that it cannot feed.
WHATIF = ("whatif", "explained", "--cores", "1,4,8", "--check")
EXPLAIN_FASTER = (*EXPLAIN[:-1], "emulated:a100")
#: A script with an option for its workers, which it has none of by default.
SCRIPT = ("sweep", "--", "python", "train.py", "images", "--step-ms", "18")
#: How long the job is watched (s).
WATCHED_S = 40
_JOB = """import runpy, sys
sys.path.insert(0, {root!r})
sys.argv = ["train.py", "decode-pillow-1", "--folder", {folder!r}, "--seconds", "120"]
runpy.run_path({jobs!r}, run_name="__main__")
"""


def main(names: list[str]) -> None:
    ASSETS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pipetune-example-") as folder:
        for name in names or ["sweep", "script", "explain", "ranks", "whatif", "watch"]:
            known = {
                "sweep": record_sweep, "script": record_script, "explain": record_explain, "watch": record_watch,
                "ranks": record_ranks, "whatif": record_whatif, "pictures": draw_kept,
            }  # fmt: skip
            known[name](Path(folder))


def record_sweep(folder: Path) -> None:
    run = folder / "run"
    subprocess.run([*_pipetune(), *SWEEP, "--out", str(run)], check=True, cwd=folder)
    _draw_timelines(run)
    _keep(run, EXAMPLES / "sweep")
    _draw_run("sweep", SWEEP)


def record_script(folder: Path) -> None:
    """The classic script of the tests, which decodes photographs; its step of 18 ms stands for an accelerator's."""
    from benchmarks.scripts import cases

    cases.make_data(folder, images=1500).rename(folder / "images")
    shutil.copy(cases.SCRIPTS / "classic.py", folder / "train.py")
    run = folder / "run"
    # A python of that name, as a person has it.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([*_pipetune(), *SCRIPT[:1], "--out", "run", *SCRIPT[1:]], check=True, cwd=folder, env=environment)
    _keep(run, EXAMPLES / "script")
    _draw_run("script", SCRIPT)


def record_explain(folder: Path) -> None:
    run = folder / "run"
    subprocess.run([*_pipetune(), *EXPLAIN, "--out", str(run)], check=True, cwd=folder)
    _keep(run, EXAMPLES / "explain")
    _draw_run("explain", EXPLAIN)


def record_ranks(folder: Path) -> None:
    run = folder / "run"
    subprocess.run([*_pipetune(), *RANKS, "--out", str(run)], check=True, cwd=folder)
    _keep(run, EXAMPLES / "ranks")
    _draw_run("ranks", RANKS)


def record_whatif(folder: Path) -> None:
    subprocess.run([*_pipetune(), *EXPLAIN_FASTER, "--out", "explained"], check=True, cwd=folder)
    subprocess.run([*_pipetune(), *WHATIF, "--out", "checked"], check=True, cwd=folder)
    _keep(folder / "checked", EXAMPLES / "whatif")
    _draw_run("whatif", WHATIF)


def draw_kept(_: Path) -> None:
    _draw_run("sweep", SWEEP)
    _draw_run("script", SCRIPT)
    _draw_run("explain", EXPLAIN)
    _draw_run("ranks", RANKS)
    _draw_run("whatif", WHATIF)


def _keep(run: Path, kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for name in ("run.json", "outcomes.jsonl", "result.json"):
        (kept / name).write_text(_without_places(run / name).replace(str(run.parent), "/home/me"))


def _draw_run(name: str, options: tuple[str, ...]) -> None:
    """A picture of what the command has printed, from the kept run."""
    shown = subprocess.run(
        [*_pipetune(), "report", name], check=True, stdout=subprocess.PIPE, cwd=EXAMPLES,
        env={**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"},
    ).stdout.decode()  # fmt: skip
    written = " ".join(f"'{word}'" if "?" in word else word for word in options)
    _draw(f"\x1b[1m$ pipetune {written}\x1b[0m\n\n{shown}", f"pipetune {options[0]}", ASSETS / f"{name}.png")


def record_watch(folder: Path) -> None:
    import pyte

    script, log = folder / "train.py", folder / "watch.jsonl"
    jobs = ROOT / "benchmarks" / "watch" / "jobs.py"
    script.write_text(_JOB.format(root=str(ROOT), folder=str(folder), jobs=str(jobs)))
    screen = pyte.Screen(COLUMNS, LINES)
    with _running([sys.executable, str(script)], folder) as job:
        time.sleep(10)  # until it trains
        command = ["watch", "--pid", str(job.pid), "--no-save", "--log", str(log), "--for", f"{WATCHED_S}s"]
        _on_screen([*_pipetune(), *command], pyte.ByteStream(screen), WATCHED_S - 2)
    (EXAMPLES / "watch.jsonl").write_text(_without_places(log))
    lines = [_as_text(screen, number) for number in range(LINES)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    _draw(Text("\n").join([Text("$ pipetune watch", style="bold"), *lines]), "pipetune watch", ASSETS / "watch.png")


def _pipetune() -> list[str]:
    return [sys.executable, "-m", "pipetune"]


@contextlib.contextmanager
def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    job = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        yield job
    finally:
        job.terminate()
        job.wait()


def _on_screen(command: list[str], stream: object, seconds: float) -> None:
    """Run a command in a terminal of its own until ``seconds`` have passed; what it shows then stays on the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    until = time.monotonic() + seconds
    with contextlib.suppress(OSError):  # it ended
        while time.monotonic() < until:
            stream.feed(os.read(terminal, 65536))  # type: ignore[attr-defined]
        while os.read(terminal, 65536):
            pass  # the end is not for the picture
    os.waitpid(pid, 0)


def _as_text(screen: object, number: int) -> Text:
    """One line of the screen with its colours."""
    line = screen.buffer[number]  # type: ignore[attr-defined]
    text = Text()
    for column in range(COLUMNS):
        cell = line[column]
        colours = [_colour(cell.fg), "on", _colour(cell.bg)]
        bold = "bold " if cell.bold else ""
        text.append(cell.data, bold + " ".join(colours))
    text.rstrip()
    return text


def _colour(name: str) -> str:
    if name == "default":
        return "default"
    names = {"brown": "yellow", "brightbrown": "bright_yellow"}
    if len(name) == 6 and all(letter in "0123456789abcdef" for letter in name):
        return f"#{name}"
    return names.get(name, name.replace("bright", "bright_"))


def _draw(shown: str | Text, title: str, target: Path) -> None:
    """A picture of a terminal."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi(shown) if isinstance(shown, str) else shown)
    svg = console.export_svg(title=title)
    size = svg.split('viewBox="0 0 ')[1].split('"')[0].split()
    width, height = (round(float(value)) for value in size)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(f"<style>body{{margin:0}}</style>{svg}")
        _photograph(page, target, width, height)


def _photograph(page: Path, target: Path, width: int, height: int) -> None:
    subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--screenshot={target}", f"--window-size={width},{height}", page.as_uri(),
        ],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _draw_timelines(folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    import pipetune

    run = pipetune.load(folder)
    figure, axes = pyplot.subplots(1, 2, figsize=(14, 5))
    for ax, name in zip(axes, ("default", "recommended"), strict=True):
        pipetune.plot.stall_timeline(run, name, ax=ax)
    figure.subplots_adjust(wspace=0.3)
    figure.savefig(ASSETS / "timelines.png", dpi=80, bbox_inches="tight")


def _without_places(path: Path) -> str:
    """JSON, or JSON lines, without names of this machine, its user and its folders."""
    if path.suffix == ".json":
        return json.dumps(_scrubbed(json.loads(path.read_text())), indent=1) + "\n"
    return "".join(f"{json.dumps(_scrubbed(json.loads(line)))}\n" for line in path.read_text().splitlines())


_HIDDEN = {"hostname": "example", "cwd": "/home/me", "index_path": "index.json", "root": "/home/me/images"}


def _scrubbed(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        return {key: _scrubbed(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_scrubbed(Path(inner).name if name == "job_command" else inner) for inner in value]
    if not isinstance(value, str):
        return value
    if name == "command" and "__main__.py " in value:
        return "pipetune " + value.partition("__main__.py ")[2].partition(" --out ")[0]
    return _HIDDEN.get(name, value).replace(sys.prefix, "/home/me/.venv")


if __name__ == "__main__":
    main(sys.argv[1:])
