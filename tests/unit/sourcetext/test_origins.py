from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.sourcetext.origins import find_origin
from tests.unit.sourcetext.traced import trace_loader


def place(tmp_path: Path, script: str, *words: str, **files: str) -> tuple[str, int, str, str] | None:
    """File, line, name and text of the origin of ``num_workers``."""
    calls, value, command = trace_loader(tmp_path, script, *words, **files)
    origin = find_origin("num_workers", calls, value, command)
    return None if origin is None else (Path(origin.file).name, origin.line, origin.name, origin.text)


CASES = {
    "a dictionary": (
        """
        import os
        loader_args = dict(batch_size=2, num_workers=os.cpu_count(), pin_memory=True)
        DataLoader([], shuffle=True, **loader_args)
        """,
        ("train.py", 4, "num_workers", "os.cpu_count()"),
    ),
    "a dictionary that is changed": (
        """
        kwargs = {"batch_size": 2}
        kwargs.update({"num_workers": 3})
        def main():
            DataLoader([], **kwargs)
        main()
        """,
        ("train.py", 4, "num_workers", "3"),
    ),
    "a dictionary that another one is put into": (
        """
        kwargs = {"batch_size": 2}
        more = {"num_workers": 1, "pin_memory": True}
        kwargs.update(more)
        DataLoader([], **kwargs)
        """,
        ("train.py", 4, "num_workers", "1"),
    ),
    "a key that is set": (
        """
        def main(kwargs):
            kwargs["num_workers"] = 5
            DataLoader([], **kwargs)
        main({})
        """,
        ("train.py", 4, "num_workers", "5"),
    ),
    "a parameter": (
        """
        def make(dataset, workers):
            return DataLoader(
                dataset, num_workers=workers)
        def main():
            make([], 6)
        main()
        """,
        ("train.py", 7, "workers", "6"),
    ),
    "keyword arguments of a function": (
        """
        def make(dataset, **kwargs):
            return DataLoader(dataset, **kwargs)
        make([], num_workers=7)
        """,
        ("train.py", 5, "num_workers", "7"),
    ),
    "a default": (
        """
        def make(dataset, workers=8):
            return DataLoader(dataset, num_workers=workers)
        make([])
        """,
        ("train.py", 3, "workers", "8"),
    ),
    "a variable": (
        """
        WORKERS = 9
        def main():
            DataLoader([], num_workers=WORKERS)
        main()
        """,
        ("train.py", 3, "WORKERS", "9"),
    ),
    "a positional argument": (
        """
        workers = 10
        DataLoader([], 2, False, None, None, workers)
        """,
        ("train.py", 3, "workers", "10"),
    ),
    "an attribute of the object": (
        """
        class Data:
            def __init__(self, workers):
                self.workers = workers
            def loader(self):
                return DataLoader([], num_workers=self.workers)
        Data(workers=11).loader()
        """,
        ("train.py", 8, "workers", "11"),
    ),
    "a class of settings": (
        """
        class Config:
            workers = 12
        cfg = Config()
        DataLoader([], num_workers=cfg.workers)
        """,
        ("train.py", 4, "workers", "12"),
    ),
    "a method that is called by one": (
        """
        class Data:
            def train(self):
                return self.make(True, 13)
            def make(self, shuffle, n):
                return DataLoader([], num_workers=n)
        Data().train()
        """,
        ("train.py", 5, "n", "13"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_value_is_followed_to_where_it_is_written(name: str, tmp_path: Path) -> None:
    script, expected = CASES[name]
    assert place(tmp_path, script) == expected


@pytest.mark.parametrize(
    "script",
    [
        "DataLoader([], num_workers=4)",
        "DataLoader([])",
        "DataLoader([], num_workers=int('4'))",
        "kwargs = {'num_workers': 4} if len([]) == 0 else {'num_workers': 2 + 2}\nDataLoader([], **kwargs)",
        "n = 4\nif n > 9:\n    n = 5\nDataLoader([], num_workers=n)",
        "k = {}\nif k:\n    k.update(num_workers=1)\nDataLoader([], **k)",
        "DataLoader([],\n  num_workers=4,\n)",
        "exec('DataLoader([], num_workers=4)')",
    ],
    ids=[
        "in the call", "nowhere", "computed", "one of two", "assigned twice", "a branch that was not run",
        "in another line of the call", "no file",
    ],
)  # fmt: skip
def test_where_the_text_does_not_tell_the_call_itself_is_named(script: str, tmp_path: Path) -> None:
    assert place(tmp_path, script) is None


def test_a_value_is_followed_into_a_module_of_the_scripts(tmp_path: Path) -> None:
    script = "from config import N\nfrom data import make\nmake(N)"
    files = {
        "config__py": "import os\n\nN = 2 * 7\n",
        "data__py": "from torch import DataLoader\ndef make(n):\n    DataLoader([], num_workers=n)\n",
    }
    assert place(tmp_path, script, **files) == ("config.py", 3, "N", "2 * 7")


def test_a_modules_attribute_is_followed(tmp_path: Path) -> None:
    script = "import config as c\nDataLoader([], num_workers=c.N)"
    assert place(tmp_path, script, config__py="N = 3\n") == ("config.py", 1, "N", "3")


@pytest.mark.parametrize("word", ["conf.json", "--config=conf.json"])
def test_a_value_of_a_configuration_file_is_named_there(word: str, tmp_path: Path) -> None:
    script = """
    import json, sys
    cfg = json.load(open(sys.argv[1].rpartition("=")[2]))
    DataLoader([], num_workers=cfg["data"]["workers"])
    """
    conf = '{\n "data": {\n  "workers": 3,\n  "size": 3}\n}\n'
    assert place(tmp_path, script, word, conf__json=conf) == ("conf.json", 3, "workers", "3")


def test_a_dictionary_that_comes_from_a_file_is_looked_for_there(tmp_path: Path) -> None:
    script = "import json\ncfg = json.load(open('c.json'))\nk = dict(cfg['loader'])\nDataLoader([], **k)"
    conf = '{"loader": {\n  "num_workers": 2\n}}\n'
    assert place(tmp_path, script, c__json=conf) == ("c.json", 2, "num_workers", "2")


SETTINGS = """
class Node:
    pass
def defaults():
    C = Node()
    C.workers = 3
    return C
class Trainer:
    def __init__(self, config):
        self.config = config
    def run(self):
        DataLoader([], num_workers=self.config.workers)
"""


def test_a_setting_that_is_collected_at_run_time_is_the_only_one_of_its_name(tmp_path: Path) -> None:
    script = SETTINGS + "Trainer(defaults()).run()"
    assert place(tmp_path, script) == ("train.py", 7, "workers", "3")


def test_of_two_settings_of_a_name_none_is_guessed(tmp_path: Path) -> None:
    script = SETTINGS + "c = defaults()\nc.workers = 3\nTrainer(c).run()"
    assert place(tmp_path, script) is None


def test_a_key_that_stands_twice_with_this_value_is_not_guessed(tmp_path: Path) -> None:
    script = "import json\ncfg = json.load(open('c.json'))\nDataLoader([], num_workers=cfg['train']['n'])"
    conf = '{\n "train": {\n  "n": 3},\n "test": {\n  "n": 3}\n}\n'
    assert place(tmp_path, script, c__json=conf) is None


def test_other_calls_that_take_the_dictionary_are_named(tmp_path: Path) -> None:
    script = "k = dict(num_workers=2)\ndef later():\n    DataLoader([1], **k)\nDataLoader([], **k)"
    calls, value, command = trace_loader(tmp_path, script)
    origin = find_origin("num_workers", calls, value, command)
    assert origin is not None
    assert (origin.line, origin.also) == (2, (4,))


def test_the_trainers_arguments_are_named_for_a_loader_that_no_call_makes(tmp_path: Path) -> None:
    script = """
    class TrainingArguments:
        def __init__(self, **more):
            pass
    class Trainer:
        def train(self):
            exec(compile("DataLoader([], num_workers=2)", "/usr/lib/site-packages/transformers/t.py", "exec"),
                 {"DataLoader": DataLoader, "__name__": "transformers.trainer"})
    args = TrainingArguments(
        dataloader_num_workers=2)
    Trainer().train()
    """
    assert place(tmp_path, script) == ("train.py", 11, "dataloader_num_workers", "2")
