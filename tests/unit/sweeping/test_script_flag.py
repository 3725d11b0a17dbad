from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.sweeping.script_flag import flag_of


def flag(tmp_path: Path, expression: str, *lines: str) -> str | None:
    file = tmp_path / "train.py"
    file.write_text("\n".join(lines))
    return flag_of(expression, str(file))


@pytest.mark.parametrize(
    ("expression", "line", "expected"),
    [
        ("args.workers", "p.add_argument('--workers', type=int)", "--workers"),
        ("args.workers", "p.add_argument('-j', '--workers', default=4)", "--workers"),
        ("args.num_workers", "p.add_argument('--num-workers')", "--num-workers"),
        ("opt.n", "p.add_argument('--workers', dest='n')", "--workers"),
        ("args.j", "p.add_argument('-j', type=int)", "-j"),
        ("self.args.workers", "group.add_argument('--workers')", "--workers"),
        ("num_workers", "@click.option('--num-workers', default=1)\ndef main(num_workers): pass", "--num-workers"),
        ("workers", "@option('-w', '--workers')\ndef main(workers): pass", "--workers"),
        ("workers", "p.add_argument('--workers')\nworkers = args.workers", "--workers"),
        ("args.workers", "p.add_argument('--workers')\nprint(args.workers)\nargs.lr = 2 * args.workers", "--workers"),
    ],
)
def test_the_option_that_sets_an_expression_is_found(expression: str, line: str, expected: str, tmp_path: Path) -> None:
    assert flag(tmp_path, expression, "import argparse, click", line) == expected


@pytest.mark.parametrize(
    ("expression", "lines"),
    [
        ("4", ["p.add_argument('--workers')"]),
        ("args.workers // 2", ["p.add_argument('--workers')"]),
        ("int(args.workers)", ["p.add_argument('--workers')"]),
        ("cfg['workers']", ["p.add_argument('--workers')"]),
        ("args.workers", ["p.add_argument('--jobs')"]),
        ("args.n", ["p.add_argument('--n', dest='workers')"]),
        ("args.workers", ["p.add_argument('workers')"]),
        ("args.workers", ["p.add_argument(NAME)"]),
        ("args.workers", ["p.other('--workers')"]),
        ("args.workers", ["p.add_argument('--workers')", "q.add_argument('-w', '--workers-too', dest='workers')"]),
        ("args.", ["p.add_argument('--workers')"]),
        ("args.workers", ["p.add_argument('--workers'"]),
        ("args.workers", []),
        ("args.workers", ["p.add_argument('--workers')", "args.workers = int(args.workers / ngpus)"]),
        ("args.workers", ["p.add_argument('--workers')", "args.workers //= ngpus"]),
        ("workers", ["p.add_argument('--workers')", "workers, n = split(args)"]),
    ],
    ids=[
        "a number", "arithmetic", "a call", "a table", "another option", "a name that is another's", "an argument",
        "a name that is not written there", "another function", "two options", "no expression", "no Python", "nothing",
        "computed", "divided", "unpacked",
    ],
)  # fmt: skip
def test_where_it_cannot_be_told_there_is_none(expression: str, lines: list[str], tmp_path: Path) -> None:
    assert flag(tmp_path, expression, *lines) is None


def test_the_same_option_twice_is_one(tmp_path: Path) -> None:
    line = "p.add_argument('--workers')"
    assert flag(tmp_path, "args.workers", line, line) == "--workers"


def test_a_file_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert flag_of("args.workers", str(tmp_path / "gone.py")) is None
    (tmp_path / "binary.py").write_bytes(b"\0\xff")
    assert flag_of("args.workers", str(tmp_path / "binary.py")) is None
