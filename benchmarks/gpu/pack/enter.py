"""Sets up what pack.sh packed, on the machine that it was carried to. Needs nothing but Python; enter.sh starts it.

Folders below the one for temporary files, each complete or absent: ``base`` (wheels and jpeg-roi), ``dali``, and
``kept`` with this part's share of DALI, because a later call may find another part only. Prints the lines that the
shell runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import shlex
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_NAMES = (".gpu1", ".gpu2")
_CHUNK_BYTES = 1 << 20


def main() -> int:
    try:
        for line in enter(_HERE, Path(tempfile.gettempdir())):
            print(line)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        print(f"error: cannot use {_HERE}: {error}; run pack.sh and carry the parts again", file=sys.stderr)
        return 1
    return 0


def enter(here: Path, temporary: Path) -> list[str]:
    """Set up what has arrived; returns lines for the shell.

    Args:
        here: one of the parts.
        temporary: folder to make the site folder in.

    Raises:
        ValueError: the parts are for another Python or processor, damaged, or another user has the site folder.
    """
    text = (here / "parts.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    check_machine(manifest)
    site = open_site(temporary / f"pipetune-gpu-{os.geteuid()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}")
    beside = [here, *(here.parent / name for name in _NAMES), site / "kept"]
    # A part of an earlier packing is no part of this one.
    folders = [folder for folder in beside[:-1] if has_text(folder / "parts.json", text)] + beside[-1:]
    if not (site / "base").exists():
        first = next((folder for folder in folders if (folder / "whl").is_dir()), None)
        if first is None:
            raise ValueError(f"{_NAMES[0]} is not beside it, and was not entered before")
        with make_folder(site / "base") as base:
            install_wheels(sorted((first / "whl").glob("*.whl")), manifest["wheels"], base)
            copy_data(first / "data", base / "data")
    if not (site / "dali").exists():
        shares = find_shares(folders, manifest["dali"]["bytes"])
        if shares is None:
            keep_share(here, site / "kept")
            print(f"DALI is not complete: carry {_NAMES[1]}, too. Everything else is set up.", file=sys.stderr)
        else:
            with make_folder(site / "dali") as dali:
                unpack_dali(shares, manifest["dali"]["sha256"], dali)
            shutil.rmtree(site / "kept", ignore_errors=True)
    print(f"set up in {site}: {', '.join(sorted(path.name for path in site.iterdir()))}", file=sys.stderr)
    return write_exports(site)


def check_machine(manifest: dict[str, Any]) -> None:
    """Check that this Python can load what was packed.

    Raises:
        ValueError: it cannot.
    """
    wanted = ".".join(map(str, manifest["python"]))
    if list(sys.version_info[:2]) != manifest["python"]:
        version = platform.python_version()
        raise ValueError(f"it is for Python {wanted}, and this is {version} (set PYTHON=python{wanted})")
    if platform.machine() != manifest["processor"]:
        raise ValueError(f"it is for {manifest['processor']}, and this is {platform.machine()}")


def open_site(site: Path) -> Path:
    """The folder for everything, which is this user's alone: its code will run.

    Raises:
        ValueError: another user has made it.
    """
    with contextlib.suppress(FileExistsError):
        site.mkdir(mode=0o700)
    status = site.lstat()
    if status.st_uid != os.geteuid() or not site.is_dir() or site.is_symlink():
        raise ValueError(f"{site} belongs to another user")
    site.chmod(0o700)
    return site


def has_text(file: Path, text: str) -> bool:
    """Whether a file is there with this text."""
    return file.is_file() and file.read_text(encoding="utf-8") == text


@contextlib.contextmanager
def make_folder(place: Path) -> Iterator[Path]:
    """A folder that gets its name when it is complete."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as work:
        folder = Path(work, place.name)
        folder.mkdir()
        yield folder
        with contextlib.suppress(FileExistsError, OSError) if place.exists() else contextlib.nullcontext():
            folder.rename(place)


def install_wheels(wheels: Sequence[Path], hashes: dict[str, str], base: Path) -> None:
    """Unpack wheels as pip would: packages into ``site``, programs into ``bin``.

    Raises:
        ValueError: a wheel is missing or damaged.
    """
    if {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels} != hashes:
        raise ValueError("a wheel is missing or damaged")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if entry.is_dir():
                    continue
                folder, is_program = base / "site", ".data/scripts/" in entry.filename
                if is_program:
                    folder, entry.filename = base / "bin", entry.filename.split("/")[-1]
                path = Path(archive.extract(entry, folder))
                path.chmod(0o755 if is_program else 0o644)


def copy_data(source: Path, target: Path) -> None:
    """Copy jpeg-roi for this user alone: pipetune loads no library that others can have written."""
    for path in [source, *sorted(source.rglob("*"))]:
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(mode=0o700)
        else:
            shutil.copyfile(path, copy)
            copy.chmod(0o600)


def find_shares(folders: Sequence[Path], size_bytes: int) -> list[Path] | None:
    """The files that make up DALI's archive; ``None``: they are not all here."""
    shares: list[Path] = []
    for index in range(len(_NAMES)):
        files = [folder / f"dali.{index}" for folder in folders]
        shares += [file for file in files if file.is_file()][:1]
    return shares if sum(share.stat().st_size for share in shares) == size_bytes else None


def keep_share(part: Path, kept: Path) -> None:
    """Keep a copy of this part's share of DALI until the other one arrives."""
    for share in part.glob("dali.*"):
        if not (kept / share.name).exists():
            kept.mkdir(exist_ok=True)
            partial = kept / f".{share.name}.{os.getpid()}"
            shutil.copyfile(share, partial)
            partial.rename(kept / share.name)


def unpack_dali(shares: Sequence[Path], sha256: str, folder: Path) -> None:
    """Join the shares and unpack them.

    Raises:
        ValueError: they are damaged.
    """
    whole = b"".join(share.read_bytes() for share in shares)
    if hashlib.sha256(whole).hexdigest() != sha256:
        raise ValueError("the parts of DALI are damaged")
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r|xz") as archive:
        archive.extractall(folder, filter="data")


def write_exports(site: Path) -> list[str]:
    """Lines for the shell; folders that it has already do not come twice."""
    folders = [str(path) for path in (site / "base" / "site", site / "dali") if path.exists()]
    data = {
        "PYTHONPATH": put_first(folders, os.environ.get("PYTHONPATH", "")),
        "PATH": put_first([str(site / "base" / "bin")], os.environ.get("PATH", "")),
        "XDG_DATA_HOME": str(site / "base" / "data"),
        "PYTHONUNBUFFERED": "1",
    }
    return [f"export {name}={shlex.quote(value)}" for name, value in data.items()]


def put_first(folders: Sequence[str], path: str) -> str:
    """A search path that begins with these folders."""
    rest = [folder for folder in path.split(os.pathsep) if folder and folder not in folders]
    return os.pathsep.join([*folders, *rest])


if __name__ == "__main__":
    sys.exit(main())
