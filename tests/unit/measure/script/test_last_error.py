from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pipetune.measure.script.last_error import ScriptException, find_exception, last_words, shorten_path

LIBRARY = '  File "/venv/lib/python3.12/site-packages/torch/x.py", line 9, in f\n    g()\n    ^^^\n'


def traceback(error: str, line: int = 12, *, library: bool = False) -> str:
    frames = f'  File "/job/train.py", line {line}, in main\n    batch = f()\n            ^^^\n'
    return f"Traceback (most recent call last):\n{frames}{LIBRARY if library else ''}{error}\n"


def prefixed(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def found(output: str) -> ScriptException:
    exception = find_exception(output)
    assert exception is not None
    return exception


def words(output: str) -> str:
    return found(output).in_words("/job")


def test_the_last_frame_of_the_users_is_the_place() -> None:
    assert words("epoch 1\n" + traceback("ValueError: no data", library=True)) == "ValueError: no data (train.py:12)"


def test_a_bar_of_progress_before_it_and_colours_in_it_do_no_harm() -> None:
    output = "  0%|          | 0/10 [00:00<?, ?it/s]" + traceback("\x1b[1mValueError\x1b[0m: no data") + "bye\n"
    assert words(output) == "ValueError: no data (train.py:12)"


@pytest.mark.parametrize(
    "between",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_of_a_chain_the_last_one_is_what_was_raised(between: str) -> None:
    exception = found(traceback("KeyError: 'a'", 3) + f"\n{between}\n\n" + traceback("ValueError: no data", 5))
    assert (exception.text, exception.line, exception.before) == ("ValueError: no data", 5, ("KeyError: 'a'",))


def test_a_workers_exception_is_its_own_line_and_place() -> None:
    caught = (
        f"RuntimeError: Caught OSError in DataLoader worker process 0.\nOriginal {traceback('OSError: cut off', 40)}"
    )
    assert words(f"Traceback (most recent call last):\n{LIBRARY}{caught}") == "OSError: cut off (train.py:40)"


def test_a_message_that_begins_on_the_next_line_is_read() -> None:
    error = "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s): a"
    assert words(traceback(error)) == (
        "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): a (train.py:12)"
    )


@pytest.mark.parametrize(
    "error",
    ["KeyboardInterrupt", "AssertionError", "_pickle.PicklingError: no", "zlib.error: x", "main.<locals>.BadLabel: -1"],
)
def test_exceptions_of_all_names_are_known(error: str) -> None:
    assert found(traceback(error)).text == error


def test_logs_between_a_traceback_and_its_exception_are_none() -> None:
    head, _, tail = traceback("ValueError: no data").rpartition("ValueError")
    assert found(f"{head}WARNING: slow\nloss: 0.3\nepoch 1: fine\nValueError{tail}").text == "ValueError: no data"


def test_of_several_ranks_the_root_cause_is_told_whatever_the_others_say() -> None:
    other = prefixed("[rank0]: ", traceback("RuntimeError: Connection closed by peer [127.0.0.1]", 99))
    output = other + prefixed("[rank1]: ", traceback("ValueError: device_ids", 7)) + LAUNCHER
    assert words(output) == "ValueError: device_ids (train.py:7, rank 1)"


def test_ranks_whose_lines_are_mixed_are_told_apart_by_their_prefixes() -> None:
    zero = prefixed("[rank0]: ", traceback("RuntimeError: Connection reset", 99)).splitlines()
    one = prefixed("[default1]:[rank1]: ", traceback("ValueError: device_ids", 7)).splitlines()
    mixed = [line for pair in zip(zero, one, strict=True) for line in pair]
    assert words("\n".join(mixed)) == "ValueError: device_ids (train.py:7, rank 1)"


def test_ranks_without_prefixes_are_read_without_the_launchers_own_traceback() -> None:
    reset = traceback("torch.distributed.DistBackendError: NCCL error", 99)
    assert words(traceback("ValueError: no data") + reset + LAUNCHER) == "ValueError: no data (train.py:12)"
    accelerate = (
        "Traceback (most recent call last):\n" + LIBRARY + "subprocess.CalledProcessError: Command '[]' returned"
    )
    assert words(traceback("ValueError: no data") + accelerate) == "ValueError: no data (train.py:12)"


def test_a_rank_that_a_signal_has_ended_is_told_with_it() -> None:
    killed = found(LAUNCHER.replace("exitcode  : 1", "exitcode  : -9"))
    assert (killed.text, killed.rank, killed.signal) == ("killed by SIGKILL", 1, 9)


#: What torchrun prints at the end.
LAUNCHER = f"""E1128 05:00:00 1234 torch/distributed/elastic/api.py:984] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
{LIBRARY}torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/job/train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_05:00:00
  host      : here
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_a_rank_that_has_exited_without_a_word_is_told_and_not_what_its_peers_say_of_that() -> None:
    peer = prefixed("[rank0]: ", traceback("RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:16587."))
    report = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 3 (pid: 7)\n"
    assert words(peer + report) == "exit code 3 (rank 1)"
    assert words(peer.replace("Connection closed by", "no") + report).startswith("RuntimeError")


def test_richs_boxes_are_read() -> None:
    lines = ["/job/train.py:12 in main     ", "                             ", "❱ 12 raise ValueError        "]
    box = "╭ Traceback (most recent call last) ╮\n" + "".join(f"│ {line}│\n" for line in lines)
    assert words(f"{box}╰───────╯\nValueError: no data\n") == "ValueError: no data (train.py:12)"


def test_what_ends_no_script_is_not_taken_for_it() -> None:
    ignored = "Exception ignored in: <function D.__del__ at 0x7f>\n" + traceback("AssertionError: can only test", 77)
    assert words(traceback("ValueError: no data") + ignored) == "ValueError: no data (train.py:12)"
    assert words(ignored) == "AssertionError: can only test (train.py:77)", "where there is nothing else"


def test_output_without_an_exception_has_its_last_words() -> None:
    assert find_exception("usage: x\nx: error: no data\n====\n") is None
    assert last_words("usage: x\nx: error: no data\n====\n\n") == "x: error: no data"
    assert last_words("71\tTrain Epoch: 10 [0/16]\tLoss: 0.86\n") == "71 Train Epoch: 10 [0/16] Loss: 0.86"
    assert last_words("") == ""


def test_a_path_is_shortened_in_its_folder_alone() -> None:
    assert shorten_path("/job/a/b.py", "/job") == "a/b.py"
    assert shorten_path("/jobs/b.py", "/job") == "/jobs/b.py"


@pytest.mark.parametrize(
    ("code", "text", "line"),
    [
        ("def main():\n    raise ValueError('no data')\nmain()", "ValueError: no data", 2),
        ("import broken", "SyntaxError: invalid syntax", 1),
        ("def f(:\n    pass", "SyntaxError: invalid syntax", 1),
        ("if 1:\npass", "IndentationError: expected an indented block after 'if' statement on line 1", 2),
        (
            "raise ExceptionGroup('two', [ValueError('a'), TypeError('b')])",
            "ExceptionGroup: two (2 sub-exceptions): ValueError: a",
            1,
        ),
        (
            "try:\n    1 / 0\nexcept Exception as error:\n    raise KeyError('x') from error",
            "KeyError: 'x'",
            4,
        ),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded", 1),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", 1),
        ("e = ValueError('no data')\ne.add_note('more')\nraise e", "ValueError: no data", 3),
    ],
)
def test_what_this_python_prints_is_read(tmp_path: Path, code: str, text: str, line: int) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    exception = found(done.stderr)
    assert (exception.text, exception.line) == (text, line), done.stderr
    assert exception.file is not None
    assert Path(exception.file).parent == tmp_path
