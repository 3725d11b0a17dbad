from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from pipetune.records.script import SourceCall
from pipetune.sourcetext.options import find_option
from tests.unit.sourcetext.traced import trace_loader

PARSER = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("-j", "--workers", type=int, default=4)
args = p.parse_args()
"""


def option(tmp_path: Path, script: str, *words: str, **files: str) -> tuple[str, ...] | None:
    """The forms of the option that sets ``num_workers``; an override of Hydra's ends in ``=``."""
    calls, value, command = trace_loader(tmp_path, script, *words, **files)
    found = find_option("num_workers", calls, value, command)
    return None if found is None else (*found.words, *(["="] if found.override else []))


def parsed(script: str) -> str:
    return PARSER + textwrap.dedent(script)


CASES = {
    "argparse": (parsed("DataLoader([], num_workers=args.workers)"), ("--workers", "-j")),
    "through a parameter": (
        parsed("def make(n):\n    DataLoader([], num_workers=n)\nmake(args.workers)"), ("--workers", "-j"),
    ),
    "through a dictionary": (parsed("k = dict(num_workers=args.workers)\nDataLoader([], **k)"), ("--workers", "-j")),
    "through a variable": (parsed("n = args.workers\nDataLoader([], num_workers=n)"), ("--workers", "-j")),
    "a branch that was not run": (
        parsed("if args.workers > 99:\n    args.workers = 99\nDataLoader([], num_workers=args.workers)"),
        ("--workers", "-j"),
    ),
    "as a dictionary": (
        PARSER.replace("p.parse_args()", "vars(p.parse_args())") + "DataLoader([], num_workers=args['workers'])",
        ("--workers", "-j"),
    ),
    "another destination": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--jobs', dest='n', type=int, default=1)\n"
        "a = p.parse_args()\nDataLoader([], num_workers=a.n)", ("--jobs",),
    ),
    "assigned from itself": (parsed("workers = args.workers\nDataLoader(num_workers=workers)"), ("--workers", "-j")),
    "an object that keeps it": (
        parsed("""
        class Data:
            def __init__(self, options):
                self.options = options
            def make(self):
                DataLoader([], num_workers=self.options.workers)
        Data(args).make()
        """), ("--workers", "-j"),
    ),
    "click": (
        """
        import click
        @click.command()
        @click.option("-w", "--num-workers", default=3)
        def main(num_workers):
            DataLoader([], num_workers=num_workers)
        main()
        """, ("--num-workers", "-w"),
    ),
    "typer": (
        """
        import typer
        app = typer.Typer()
        @app.command()
        def main(num_workers: int = 3):
            DataLoader([], num_workers=num_workers)
        app()
        """, ("--num-workers",),
    ),
    "typer with a form of its own": (
        """
        import typer
        def main(n: int = typer.Option(3, "-n", "--loaders")):
            DataLoader([], num_workers=n)
        typer.run(main)
        """, ("--loaders", "-n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_option_that_sets_a_loaders_workers_is_found(name: str, tmp_path: Path) -> None:
    script, expected = CASES[name]
    assert option(tmp_path, script) == expected


@pytest.mark.parametrize(
    "script",
    [
        "DataLoader([], num_workers=4)",
        parsed("DataLoader([], num_workers=args.workers // 2)"),
        parsed("args.workers = args.workers + 1\nDataLoader([], num_workers=args.workers)"),
        parsed("args.workers //= 2\nDataLoader([], num_workers=args.workers)"),
        parsed("if args.workers:\n    args.workers = 1\nDataLoader([], num_workers=args.workers)"),
        parsed("p.add_argument('-w', '--more', dest='workers')\nDataLoader([], num_workers=args.workers)"),
        "class cfg:\n    workers = 4\nDataLoader([], num_workers=cfg.workers)",
    ],
    ids=["a number", "arithmetic", "computed", "divided", "a branch that was run", "two options", "no parser"],
)
def test_where_an_option_does_not_decide_none_is_offered(script: str, tmp_path: Path) -> None:
    assert option(tmp_path, script) is None


def test_a_parser_in_a_module_of_the_scripts_counts(tmp_path: Path) -> None:
    script = "from options import args\nDataLoader([], num_workers=args.workers)"
    assert option(tmp_path, script, options__py=PARSER) == ("--workers", "-j")


def written(tmp_path: Path, text: str, line: int, left: int, right: int) -> tuple[str, ...] | None:
    """The option for a loader of a script that cannot run here: its call is at a place of the text."""
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    call = SourceCall(file=str(file), span=(line, line, left, right))
    found = find_option("num_workers", [call], 4, ["python", "train.py"])
    return None if found is None else (*found.words, *(["="] if found.override else []))


def place_of(text: str) -> tuple[int, int, int]:
    """Line and columns of the loader's call."""
    lines = textwrap.dedent(text).splitlines()
    number = next(index for index, line in enumerate(lines) if "DataLoader(" in line)
    left = lines[number].index("DataLoader(")
    return number + 1, left, len(lines[number])


NOT_INSTALLED = {
    "absl": (
        """
        from absl import flags
        FLAGS = flags.FLAGS
        flags.DEFINE_integer("num_workers", 4, "")
        def main(argv):
            DataLoader([], num_workers=FLAGS.num_workers)
        """, ("--num_workers",),
    ),
    "absl with a holder": (
        """
        from absl import flags
        _N = flags.DEFINE_integer("num_workers", 4, "")
        def main(argv):
            DataLoader([], num_workers=_N.value)
        """, ("--num_workers",),
    ),
    "Hydra": (
        """
        import hydra
        @hydra.main(config_path="conf", config_name="train")
        def main(cfg):
            DataLoader([], num_workers=cfg.data["num_workers"])
        """, ("data.num_workers", "="),
    ),
    "HfArgumentParser": (
        """
        @dataclass
        class Args:
            num_workers: int = field(default=4)
        args, = HfArgumentParser((Args,)).parse_args_into_dataclasses()
        DataLoader([], num_workers=args.num_workers)
        """, ("--num_workers",),
    ),
    "tyro": (
        """
        @dataclass
        class Args:
            num_workers: int = 4
        args = tyro.cli(Args)
        DataLoader([], num_workers=args.num_workers)
        """, ("--num-workers",),
    ),
    "fire": (
        """
        def main(num_workers=4):
            DataLoader([], num_workers=num_workers)
        fire.Fire(main)
        """, ("--num_workers",),
    ),
    "jsonargparse": (
        """
        def main(num_workers: int = 4):
            DataLoader([], num_workers=num_workers)
        jsonargparse.auto_cli(main)
        """, ("--num_workers",),
    ),
    "LightningCLI": (
        """
        class Data(LightningDataModule):
            def __init__(self, num_workers: int = 4):
                self.num_workers = num_workers
            def train_dataloader(self):
                return DataLoader([], num_workers=self.num_workers)
        LightningCLI(Model, Data)
        """, ("--data.num_workers",),
    ),
    "LightningCLI with saved parameters": (
        """
        class Data(LightningDataModule):
            def __init__(self, num_workers: int = 4):
                self.save_hyperparameters()
            def train_dataloader(self):
                return DataLoader([], num_workers=self.hparams.num_workers)
        LightningCLI(Model, Data)
        """, ("--data.num_workers",),
    ),
    "the Trainer of Transformers": (
        """
        args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        def DataLoader_(): pass
        trainer.train()  # DataLoader(
        """, ("--dataloader_num_workers",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_INSTALLED)
def test_options_of_other_parsers_are_told_from_the_text(name: str, tmp_path: Path) -> None:
    text, expected = NOT_INSTALLED[name]
    line, left, right = place_of(text)
    if "trainer.train()" in text:
        left, right = 0, len("trainer.train()")
    assert written(tmp_path, text, line, left, right) == expected


def test_a_part_of_hydras_configuration_that_a_function_is_given_keeps_its_path(tmp_path: Path) -> None:
    text = """
    import hydra
    def make(data):
        DataLoader([], num_workers=data.num_workers)
    @hydra.main(config_name="train")
    def main(cfg):
        make(cfg.data)
    """
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    line, left, right = place_of(text)
    calls = [
        SourceCall(file=str(file), span=(line, line, left, right)), SourceCall(file=str(file), span=(7, 7, 4, 18)),
    ]  # fmt: skip
    found = find_option("num_workers", calls, 4)
    assert found is not None
    assert (found.words, found.override) == (("data.num_workers",), True)


def test_a_file_that_is_gone_has_no_options(tmp_path: Path) -> None:
    call = SourceCall(file=str(tmp_path / "gone.py"), span=(1, 1, 0, 9))
    assert find_option("num_workers", [call], 4) is None
    assert find_option("num_workers", [], 4) is None
