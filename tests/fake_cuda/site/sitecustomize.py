"""Switches cuDNN off where torch is imported: the stand-in CUDA runtime has none. Costs nothing where torch is not."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _AfterImport(MetaPathFinder):
    """Finds ``torch.backends.cudnn`` as everybody does, and does something after it was run."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch.backends.cudnn":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_switch_off(module: ModuleType) -> None:
            run(module)
            sys.modules["torch"]._C._set_cudnn_enabled(False)

        spec.loader.exec_module = run_and_switch_off  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _AfterImport())
