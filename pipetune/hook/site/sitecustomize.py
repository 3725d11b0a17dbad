"""Lets pipetune into each Python process that inherits the environment. Does nothing without ``PIPETUNE_HOOK``.

Python imports ``sitecustomize`` at the start of every interpreter. This folder stands first on PYTHONPATH and holds
nothing else, so it hides a ``sitecustomize`` of the user's environment, which is therefore imported from here.

Written for any Python 3, because the script's interpreter may be older than pipetune needs, and has to say so.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_VARIABLE = "PIPETUNE_HOOK"
_OLDEST = (3, 11)


def _import_hidden():
    """Import the ``sitecustomize`` that would have been found without this folder."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _Finder:
    """Finds pipetune, and nothing else of the environment that it is installed in."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [_FOLDER]) if name == "pipetune" else None


def _enter(value):
    if sys.version_info < _OLDEST:
        import socket

        kind, _, folder = value.partition(":")
        if kind == "relay":
            with socket.socket(socket.AF_UNIX) as channel:
                channel.connect(os.path.join(folder, "socket"))
                line = '{"type": "too_old", "pid": %d, "python": "%d.%d"}\n'
                channel.sendall((line % (os.getpid(), *sys.version_info[:2])).encode())
        else:
            line = "pipetune: nothing is changed under Python %d.%d: 3.11 is the oldest that can be tuned\n"
            sys.stderr.write(line % tuple(sys.version_info[:2]))
        return
    before = set(sys.modules)
    sys.meta_path.insert(0, _Finder)
    from pipetune.hook.enter import enter

    enter(value, before)


if os.environ.get(_VARIABLE):
    try:
        _enter(os.environ[_VARIABLE])
    except Exception as error:  # whatever is wrong with us, the script runs
        sys.stderr.write("pipetune: cannot enter this process: %s: %s\n" % (type(error).__name__, error))
_import_hidden()
