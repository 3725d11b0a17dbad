"""The compiler that ``torch.compile`` calls to generate kernels, looked for before anything is measured.

torch would say after a minute of tracing that there is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from pipetune.errors import PipetuneError

_INSTALL = "install it (apt-get install g++), or run without --compile"


def require_compiler(accelerator_kind: str, environment: Mapping[str, str]) -> None:
    """Check that there is a compiler.

    Args:
        accelerator_kind: ``cpu``: kernels are C++, built by ``CXX`` or g++ as ``torch._inductor.config`` has it. Other
            kinds: Triton builds the function that launches a kernel, by ``CC``, gcc or clang.
        environment: of this process, which children inherit.

    Raises:
        PipetuneError: there is none.
    """
    variable, usual = ("CXX", ("g++",)) if accelerator_kind == "cpu" else ("CC", ("gcc", "clang"))
    named = environment.get(variable)
    names = (named,) if named else usual
    if any(shutil.which(name, path=environment.get("PATH")) for name in names):
        return
    said = f"{variable} names {named}, which is not there" if named else f"there is no {' or '.join(names)}"
    raise PipetuneError(f"torch.compile needs a compiler, and {said}", hint=_INSTALL)
