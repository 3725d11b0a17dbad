from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
import typer
from rich.console import Console

from pipetune.cli import doctor
from pipetune.cli.doctor import doctor_command, print_findings, text_lines
from pipetune.doctor.findings import Finding
from pipetune.errors import Interrupted, UsageError
from pipetune.install.find import Pillow
from pipetune.install.pillow_simd import Installation

FINDINGS = (
    Finding(topic="cpu", name="model", state="ok", value="AMD EPYC 7R13 [not markup] :smile:"),
    Finding(topic="cpu", name="cores", state="warning", value="64 present, 2 after the quota",
            hint="set OMP_NUM_THREADS=2 in the training job, or give it more cores"),
    Finding(topic="gpu", name="--device auto", state="note", value="will be EMULATED v100"),
    Finding(topic="backends", name="dali", state="missing", value="not installed",
            hint="pip install 'pipetune[dali-cuda130]'"),
)  # fmt: skip
WIDE = """\
cpu
  ✓ model          AMD EPYC 7R13 [not markup] :smile:
  ! cores          64 present, 2 after the quota
    → set OMP_NUM_THREADS=2 in the training job, or give it more cores

gpu
  · --device auto  will be EMULATED v100

backends
  ✗ dali           not installed
    → pip install 'pipetune[dali-cuda130]'

1 ok, 1 note, 1 warning, 1 missing
"""


@pytest.fixture(autouse=True)
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "stop_on_sigterm", lambda: None)


class Written(io.TextIOWrapper):
    """What a terminal or a pipe of that encoding was sent."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    @property
    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined, no-any-return]


def shown(findings: tuple[Finding, ...] = FINDINGS, *, encoding: str = "utf-8", **options: Any) -> str:
    target = Written(encoding)
    print_findings(Console(file=target, no_color=True, **options), findings)
    return target.text


def test_without_a_terminal_every_finding_is_a_line() -> None:
    assert shown(width=20) == WIDE


def test_a_wide_terminal_shows_the_same() -> None:
    lines = [line for line, _ in text_lines(FINDINGS, 200)]
    assert "\n".join(lines) + "\n" == WIDE


@pytest.mark.parametrize("width", [10, 40, 60])
def test_a_narrow_terminal_wraps_between_words(width: int) -> None:
    lines = [line for line, _ in text_lines(FINDINGS, width)]
    assert max(map(len, lines)) <= width or width == 10
    words = " ".join(lines).split()
    assert words == WIDE.split()
    assert "--device auto" in "\n".join(lines)


def test_a_terminal_of_another_width_is_asked_for_it() -> None:
    text = shown(force_terminal=True, width=40, _environ={"TERM": "xterm"})
    assert "[not\n" in text
    assert ":smile:" in text
    assert "give it more cores" not in text


def test_a_terminal_without_these_marks_gets_ascii() -> None:
    text = shown(encoding="ascii")
    assert text.isascii()
    assert "  x dali" in text
    assert "    -> pip install" in text


def test_text_of_more_lines_stays_in_its_line() -> None:
    finding = Finding(topic="allocator", name="PYTORCH_ALLOC_CONF", state="note", value="a:1,\n\tb:2")
    assert [line for line, _ in text_lines((finding,), None)][1] == "  · PYTORCH_ALLOC_CONF  a:1, b:2"


def test_text_of_nothing_is_a_line_nevertheless() -> None:
    finding = Finding(topic="allocator", name="MALLOC_ARENA_MAX", state="note", value=" ")
    assert [line.rstrip() for line, _ in text_lines((finding,), 40)][1] == "  · MALLOC_ARENA_MAX"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pilow", "unknown backend 'pilow'; did you mean pillow or pillow-simd?"),
        ("opencv", "opencv is installed by pip; run: pip install 'pipetune[opencv]'"),
        ("dali", "pip install 'pipetune[dali-cuda130]'"),
    ],
)
def test_only_backends_that_pip_cannot_install_are_built(name: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        doctor_command(install=name)
    assert expected in str(caught.value)


def test_installing_and_json_are_two_commands() -> None:
    with pytest.raises(UsageError, match="--json and --install"):
        doctor_command(install="pillow-simd", json_file="-")


@pytest.mark.parametrize(
    ("built", "expected"), [(True, "installed Pillow-SIMD 1.post0 in /x"), (False, "nothing to do")]
)
def test_the_installed_library_is_printed(
    built: bool, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(on_step: Any) -> Installation:
        on_step("building it")
        return Installation(pillow=Pillow(version="1.post0", folder="/x"), built=built)

    monkeypatch.setattr("pipetune.install.pillow_simd.install_pillow_simd", install)
    doctor_command(install="pillow-simd")
    written = capsys.readouterr()
    assert expected in written.out
    assert written.err == "building it\n"


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (Interrupted(15), 143)])
def test_an_interrupted_installation_has_its_exit_code(
    stop: KeyboardInterrupt, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(on_step: Any) -> Installation:
        raise stop

    monkeypatch.setattr("pipetune.install.pillow_simd.install_pillow_simd", install)
    with pytest.raises(typer.Exit) as caught:
        doctor_command(install="pillow-simd")
    assert caught.value.exit_code == code


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        f"import sys\nsys.argv = ['pipetune', *{arguments}]\nfrom pipetune.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([n for n in ('rich', 'numpy', 'pynvml', 'PIL', 'torch', 'pipetune.doctor.checkup') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "doctor" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
