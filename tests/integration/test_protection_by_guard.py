"""The guard's account of what programs do that Python knows nothing of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.protection.choose import settle_protection
from tests.integration.test_protection_without_namespaces import environment, open_mechanism
from tests.unit.protection.kept_trees import make_tree


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_programs_make_and_change_unnoticed_is_named(tmp_path: Path, is_killed: bool) -> None:
    job = tmp_path / "job"
    make_tree(job)
    protection = open_mechanism("guard", tmp_path / "run", job)
    program = tmp_path / "outputs.sh"
    # The names are in a file, so that Python cannot read them in the command.
    program.write_text("mkdir -p git/objects; echo a > git/HEAD; echo b > git/objects/b; rm -f two")
    code = (
        "import subprocess\nfor _ in range(2):\n"
        f"    subprocess.run(['sh', {str(program)!r}, '.'], check=True)\n    open('git/HEAD', 'a').write('c')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=job, env=environment(protection), check=False)
    assert done.returncode == 0
    if is_killed:
        protection._folder.close(keep=True)
        settled = settle_protection(tmp_path / "run")
        assert settled is not None
        written = settled
    else:
        written = protection.collect()
        protection.close()
    assert written.created == (str(job / "git/HEAD"), str(job / "git/objects/b"))
    assert set(written.changed) <= {str(job / "two")}
    assert (job / "two").read_text() == "content of two\n" * 2
