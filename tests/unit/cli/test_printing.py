"""Nothing is printed past the functions that replace what is no text: names and messages are other people's.

Calls are found in the source, so that one that is written later is found, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pipetune

PACKAGE = Path(pipetune.__file__).parent
#: The faces: whatever a person sees goes through one of these.
FACES = ("__main__.py", "cli", "report", "plot", "api")
PRINTS = {"print", "print_json", "rule", "echo", "secho", "prompt", "confirm", "input"}
WRITES = {"write", "writelines"}
#: Return text without control characters. ``escape`` and ``Text`` keep what they are given.
CLEANS = {"clean", "clean_lines", "_clean"}
KEEPS = {"escape", "Text", "rstrip", "map", "join"}
#: Prints what it is given after cleaning it, which this test has checked where it is defined.
OURS = {"say", "echo"}
#: Function -> why it may print something else.
ALLOWED = {
    "cli/output.py:write_text": "JSON, a page or a trace, which have their own escapes",
    "cli/sweep_print.py:print_summary": "a table whose cells are clean: test_sweep_text.py",
    "cli/explain.py:print_explanation": "a table whose cells are clean: stage_table",
    "cli/whatif.py:print_answers": "a table whose cells are clean: answer_table",
    "cli/scale.py:print_scaling": "a table whose cells are clean: text_table",
    "cli/batch_size.py:print_batch_sizes": "a table whose cells are clean: batch_table",
    "cli/schedule.py:schedule_command": "a table whose cells are clean: schedule_table",
    "cli/streams.py:write": "the stream below the others",
    "cli/streams.py:say": "the stream below the others",
    "report/progress_json.py:_write": "JSON, in which control characters are escaped",
}


def functions(tree: ast.AST, name: str = "<module>") -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the name of the function that it stands in."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else name
        if isinstance(node, ast.Call):
            yield inside, node
        yield from functions(node, inside)


def called(call: ast.expr) -> str:
    """``print`` of ``print(…)`` and of ``console.print(…)``."""
    if not isinstance(call, ast.Call):
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def prints(call: ast.Call) -> bool:
    name = called(call)
    if name in WRITES and isinstance(call.func, ast.Attribute):
        return any(word in ast.unparse(call.func.value) for word in ("std", "stream", "console", "self._file"))
    return name in PRINTS and not (isinstance(call.func, ast.Name) and name in OURS)


def is_clean(text: ast.expr) -> bool:
    """What is printed is written here, or has just been cleaned."""
    if isinstance(text, ast.Constant):
        return True
    if isinstance(text, ast.JoinedStr):
        return all(is_clean(part) for part in text.values)
    if isinstance(text, ast.FormattedValue):
        return is_clean(text.value) or ast.unparse(text.value) in ("__version__", "type(error).__name__")
    if isinstance(text, ast.Call):
        if called(text) in CLEANS:
            return True
        if called(text) in KEEPS:
            inner = text.func.value if isinstance(text.func, ast.Attribute) and not text.args else None
            return is_clean(inner or text.args[-1 if called(text) == "join" else 0])
    return isinstance(text, ast.Name) and text.id in CLEANS


def printed(path: Path) -> Iterator[str]:
    """Calls that print what was not cleaned, as ``FILE:FUNCTION``."""
    for name, call in functions(ast.parse(path.read_text())):
        if prints(call) and not all(is_clean(argument) for argument in call.args):
            yield f"{path.relative_to(PACKAGE)}:{name}"


def sources() -> list[Path]:
    found = [PACKAGE / face for face in FACES]
    return sorted({*(path for path in found if path.is_file()), *(p for face in found for p in face.rglob("*.py"))})


def test_everything_that_is_printed_is_cleaned() -> None:
    unclean = {where for path in sources() for where in printed(path)}
    assert unclean - set(ALLOWED) == set()
    assert set(ALLOWED) - unclean == set(), "which are not needed"


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("print('x')", True), ("print(f'x {clean(name)}', file=aside)", True), ("print(name)", False),
        ("print(f'x {name}')", False), ("typer.echo(name, err=True)", False), ("sys.stdout.write(text)", False),
        ("console.print(escape(clean_lines(text)), style=s)", True), ("console.print(escape(text))", False),
        ("self._console.print(Text(line))", False), ("echo(name)", True), ("print()", True), ("file.write(data)", True),
        ("self._stream.write(text)", False), ("say(console, name)", True),
    ],
)  # fmt: skip
def test_the_check_sees_what_is_not_cleaned(line: str, safe: bool, tmp_path: Path) -> None:
    (call,) = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)][:1]
    assert (not prints(call) or all(is_clean(argument) for argument in call.args)) is safe


def test_every_table_of_commas_is_written_cell_by_cell() -> None:
    found = [
        (str(path.relative_to(PACKAGE)), ast.unparse(call))
        for path in sorted(PACKAGE.rglob("*.py"))
        for _, call in functions(ast.parse(path.read_text()))
        if called(call) == "to_csv" or ast.unparse(call.func) in ("csv.writer", "csv.DictWriter")
    ]
    assert [path for path, _ in found] == ["report/exports.py"]
    assert found[0][1].startswith("run.frame().map(_cell).to_csv(")
