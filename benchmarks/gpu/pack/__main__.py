"""Packs what a rented GPU machine without a network lacks, into .gpu1 and .gpu2 beside the tree.

.gpu1 has wheels (msgspec, platformdirs, py-spy, simplejpeg, google-crc32c), jpeg-roi and the first part of DALI;
.gpu2 has the rest of DALI. Everything is for CPython 3.12 on x86-64, DALI for one kind of GPU alone. There,
`. .gpu1/enter.sh` sets up what has arrived. The first call takes two minutes and a network, later ones a few seconds.

Exit code: 0 packed, 1 a step failed or a part is larger than the limit, 2 a wrong option or a missing program.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.pack.dali import PACKAGES, build_archive
from benchmarks.gpu.pack.jpeg_roi import pack_jpeg_roi
from benchmarks.gpu.pack.machine import ARCHITECTURE, MAX_CARRIED_MIB, PROCESSOR
from benchmarks.gpu.pack.parts import Contents, compute_limit, describe_sizes, measure_tree, write_parts
from benchmarks.gpu.pack.wheels import CARRIED, download_wheels, find_cache, read_versions
from pipetune.errors import MissingPackageError, PipetuneError, UsageError

ROOT = Path(__file__).resolve().parents[3]
#: Program -> Debian package. pip and the C compiler say themselves that they are missing.
_PROGRAMS = {"strip": "binutils", "xz": "xz-utils", "ldd": "libc-bin"}


def main(arguments: list[str] | None = None) -> int:
    """Pack; returns the exit code."""
    options = parse_options(arguments)
    try:
        for line in pack(ROOT, options.limit_mib, options.sm):
            print(line)
    except PipetuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The options; a wrong one ends the program with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="pack.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    limit = f"largest size of a part in MiB, which has to fit into {MAX_CARRIED_MIB} with the tree (default: 50)"
    parser.add_argument("--limit-mib", type=int, default=50, help=limit)
    parser.add_argument("--sm", type=int, default=ARCHITECTURE, help="kind of GPU: 90 is H100 and H200 (default: 90)")
    options = parser.parse_args(arguments)
    if options.limit_mib < 1:
        parser.error(f"--limit-mib must be at least 1 (got {options.limit_mib})")
    return options


def pack(root: Path, limit_mib: int, architecture: int) -> list[str]:
    """Write the parts into ``root``; returns lines about their sizes.

    Raises:
        PipetuneError: as :func:`main` says.
    """
    require_programs()
    cache = find_cache()
    wheels, dali_wheels = download_wheels(CARRIED, cache), download_wheels(PACKAGES, cache)
    with tempfile.TemporaryDirectory() as work:
        data = Path(work, "data")
        libjpeg = pack_jpeg_roi(data)
        dali = build_archive(dali_wheels, architecture, cache)
        versions = {
            **read_versions(CARRIED),
            "jpeg-roi with libjpeg-turbo": libjpeg,
            "DALI": read_versions(PACKAGES)[PACKAGES[0]],
        }
        contents = Contents(wheels=wheels, data=data, dali=dali, versions=versions)
        tree_bytes = measure_tree(root)
        parts = write_parts(contents, root, compute_limit(limit_mib, tree_bytes))
    return describe_sizes(parts, tree_bytes)


def require_programs() -> None:
    """Check at once for all programs that packing starts.

    Raises:
        UsageError: this machine has another processor than the one that is packed for.
        MissingPackageError: a program is missing.
    """
    if platform.machine() != PROCESSOR:
        raise UsageError(f"jpeg-roi can be packed on {PROCESSOR} only, and this is {platform.machine()}")
    if missing := [program for program in _PROGRAMS if shutil.which(program) is None]:
        packages = " ".join(_PROGRAMS[program] for program in missing)
        raise MissingPackageError(f"packing needs {', '.join(missing)}", hint=f"apt-get install {packages}")


if __name__ == "__main__":
    sys.exit(main())
