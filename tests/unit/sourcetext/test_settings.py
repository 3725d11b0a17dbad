from __future__ import annotations

from pathlib import Path

from pipetune.records.script import ScriptLoader, SourceCall
from pipetune.sourcetext.settings import option_for, origins_for

LIGHTNING = """
class Data(LightningDataModule):
    def __init__(self, num_workers: int = 4):
        self.save_hyperparameters()
    def train_dataloader(self):
        return DataLoader([], num_workers=self.hparams.num_workers)
LightningCLI(Model, Data)
"""
TRAINER = """
if sys.argv[1].endswith(".json"):
    args, = HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])
else:
    args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
trainer.train()
"""
UNPACKED = """
config = read()
DataLoader([], **config)
"""


def loader_in(tmp_path: Path, text: str, call: str, workers: int) -> ScriptLoader:
    """A loader that a call in a text makes; the script cannot run here."""
    file = tmp_path / "train.py"
    file.write_text(text, encoding="utf-8")
    lines = text.splitlines()
    number = next(index for index, line in enumerate(lines) if call in line)
    left = lines[number].index(call)
    span = (number + 1, number + 1, left, len(lines[number]))
    return ScriptLoader(
        identity=None, where=f"{file}:{number + 1}", calls=(SourceCall(file=str(file), span=span),),
        settings={"num_workers": workers},
    )  # fmt: skip


def test_a_file_that_lightning_reads_counts_more_than_the_default(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("model:\n  width: 4\ndata:\n  num_workers: 4\n", encoding="utf-8")
    loader = loader_in(tmp_path, LIGHTNING, "DataLoader(", 4)
    words = ["python", "train.py", "fit", "--config", str(config)]
    assert origins_for(loader, words)["num_workers"].line == 4
    option = option_for(loader, "num_workers", words)
    assert option is not None
    assert option.words == ("--data.num_workers",)
    assert "num_workers" not in origins_for(loader, [*words, "--data.num_workers=4"]), "the command counts more"


def test_what_the_trainer_takes_is_a_field_of_its_arguments(tmp_path: Path) -> None:
    loader = loader_in(tmp_path, TRAINER, "trainer.train(", 0)
    origin = origins_for(loader, ["python", "train.py", "--output_dir", "out"])["num_workers"]
    assert (origin.name, origin.text) == ("dataloader_num_workers", "a field of TrainingArguments")


def test_beside_a_file_in_place_of_options_no_option_is_offered(tmp_path: Path) -> None:
    loader = loader_in(tmp_path, TRAINER, "trainer.train(", 0)
    option = option_for(loader, "num_workers", ["python", "train.py", "--output_dir", "out"])
    assert option is not None
    assert option.words == ("--dataloader_num_workers",)
    assert option_for(loader, "num_workers", ["python", "train.py", "args.json"]) is None


def test_a_dictionary_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    loader = loader_in(tmp_path, UNPACKED, "DataLoader(", 2)
    origin = origins_for(loader, ["python", "train.py"])["num_workers"]
    assert (origin.line, origin.text) == (3, "**config")
    assert "num_workers" not in origins_for(loader_in(tmp_path, UNPACKED, "DataLoader(", 0), ["python", "train.py"])
