from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pipetune.doctor.facts import (
    Preloaded,
    Ptrace,
    TorchBuild,
    describe_ptrace,
    find_torch,
    nvidia_card,
    open_file_limits,
    preloaded_allocator,
    readable_pressures,
    schedstat_readable,
)

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
EVERYTHING, NOTHING = "CapEff:\t000001ffffffffff\n", "CapEff:\t0000000000000000\n"
ALL_BUT_PTRACE = f"CapEff:\t{0x1FFFFFFFFFF ^ 1 << 19:016x}\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def put_torch(folder: Path, version: str, module: str | None) -> str:
    write(folder / f"torch-{version}.dist-info" / "METADATA", f"Name: torch\nVersion: {version}\n")
    if module is not None:
        write(folder / "torch" / "version.py", module)
    return str(folder)


def test_limits_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, resource.RLIM_INFINITY))
    assert open_file_limits() == (1024, None)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, 4096))
    assert open_file_limits() == (None, 4096)


def test_pressure_that_is_switched_off_or_hidden_is_not_readable(tmp_path: Path) -> None:
    write(tmp_path / "pressure/cpu", PRESSURE)
    write(tmp_path / "pressure/io", "")  # a kernel with psi=0 refuses the reading, which comes out as nothing
    assert readable_pressures(tmp_path) == ("cpu",)
    assert readable_pressures(tmp_path / "absent") == ()


@pytest.mark.parametrize(("text", "readable"), [("73018 55012 2\n", True), ("", False), ("0\n", False)])
def test_schedstat(tmp_path: Path, text: str, readable: bool) -> None:
    write(tmp_path / "self/schedstat", text)
    assert schedstat_readable(tmp_path) is readable
    assert not schedstat_readable(tmp_path / "absent")


@pytest.mark.parametrize(
    ("scope", "status", "expected", "allowed"),
    [
        ("0\n", NOTHING, Ptrace(scope=0, capable=False), True),
        ("1\n", NOTHING, Ptrace(scope=1, capable=False), False),
        ("1\n", ALL_BUT_PTRACE, Ptrace(scope=1, capable=False), False),
        ("1\n", EVERYTHING, Ptrace(scope=1, capable=True), True),
        ("2\n", "CapEff:\t0000000000080000\n", Ptrace(scope=2, capable=True), True),
        ("3\n", EVERYTHING, Ptrace(scope=3, capable=True), False),
        ("what\n", "Name:\tpython\n", Ptrace(scope=None, capable=False), True),
    ],
)
def test_ptrace(tmp_path: Path, scope: str, status: str, expected: Ptrace, allowed: bool) -> None:
    write(tmp_path / "sys/kernel/yama/ptrace_scope", scope)
    write(tmp_path / "self/status", status)
    assert describe_ptrace(tmp_path) == expected
    assert expected.allowed is allowed


def test_ptrace_without_yama_and_without_anything(tmp_path: Path) -> None:
    assert describe_ptrace(tmp_path) == Ptrace(scope=None, capable=False)


@pytest.mark.parametrize(
    ("preload", "expected"),
    [
        (None, None),
        ("", None),
        ("/opt/tcmalloc/libfoo.so", None),
        ("libjemalloc.so.2", Preloaded(name="jemalloc", library="libjemalloc.so.2", present=True)),
        ("/a/libx.so /no/libtcmalloc.so", Preloaded(name="tcmalloc", library="/no/libtcmalloc.so", present=False)),
        ("/a/libx.so:libmimalloc.so", Preloaded(name="mimalloc", library="libmimalloc.so", present=True)),
    ],
)
def test_preloaded_allocator(preload: str | None, expected: Preloaded | None) -> None:
    assert preloaded_allocator({} if preload is None else {"LD_PRELOAD": preload}) == expected


def test_a_preloaded_library_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "libjemalloc.so").touch()
    found = preloaded_allocator({"LD_PRELOAD": str(tmp_path / "libjemalloc.so")})
    assert found is not None
    assert found.present


@pytest.mark.usefixtures("no_right_to_read_everything")
def test_a_preloaded_library_in_a_folder_that_may_not_be_entered(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir(mode=0o600)
    found = preloaded_allocator({"LD_PRELOAD": str(tmp_path / "root" / "libjemalloc.so")})
    assert found is not None
    assert not found.present


@pytest.mark.parametrize(
    ("vendor", "kind", "expected"),
    [
        ("0x10de\n", "0x030200\n", True),
        ("0x10de\n", "0x030000\n", True),
        ("0x10de\n", "0x040300\n", False),  # the sound of its HDMI
        ("0x8086\n", "0x030000\n", False),
        ("", "", False),
    ],
)
def test_an_nvidia_gpu_without_its_driver(tmp_path: Path, vendor: str, kind: str, expected: bool) -> None:
    assert not nvidia_card(tmp_path)
    write(tmp_path / "bus/pci/devices/0000:00:00.0/vendor", "0x1022\n")
    write(tmp_path / "bus/pci/devices/0000:01:00.0/vendor", vendor)
    write(tmp_path / "bus/pci/devices/0000:01:00.0/class", kind)
    assert nvidia_card(tmp_path) is expected


@pytest.mark.parametrize(
    ("version", "module", "expected"),
    [
        # From the files of torch 2.14.1 on PyPI, whose metadata does not say cu130.
        (
            "2.14.1",
            "from typing import Optional\n__version__ = '2.14.1+cu130'\ndebug = False\n"
            "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
            TorchBuild(version="2.14.1+cu130", platform="CUDA 13.0"),
        ),
        ("2.8.0+cpu", "__version__ = '2.8.0+cpu'\ncuda = None\nhip = None\n",
         TorchBuild(version="2.8.0+cpu", platform="CPU")),
        ("2.8.0", "cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n",
         TorchBuild(version="2.8.0", platform="ROCm 6.4.43482")),
        ("2.8.0+xpu", "cuda: Optional[str] = None\nhip: Optional[str] = None\nxpu: Optional[str] = '20250101'\n",
         TorchBuild(version="2.8.0+xpu", platform="XPU 20250101")),
        ("2.8.0+cu128", None, TorchBuild(version="2.8.0+cu128", platform="CUDA 12.8")),
        ("2.8.0+cpu", None, TorchBuild(version="2.8.0+cpu", platform="CPU")),
        ("2.8.0", None, TorchBuild(version="2.8.0", platform=None)),
        ("2.8.0", "rubbish", TorchBuild(version="2.8.0", platform=None)),
    ],
)  # fmt: skip
def test_platform_of_the_torch_build(tmp_path: Path, version: str, module: str | None, expected: TorchBuild) -> None:
    assert find_torch([put_torch(tmp_path, version, module)]) == expected


def test_no_torch_and_the_remains_of_one(tmp_path: Path) -> None:
    assert find_torch([str(tmp_path)]) is None
    (tmp_path / "torch-2.8.0.dist-info").mkdir()
    assert find_torch([str(tmp_path)]) is None


def test_the_first_torch_on_the_path_counts(tmp_path: Path) -> None:
    folders = [put_torch(tmp_path / "a", "2.9.0", None), put_torch(tmp_path / "b", "2.8.0", None)]
    found = find_torch(folders)
    assert found is not None
    assert found.version == "2.9.0"


def test_the_real_torch_is_found_without_importing_it() -> None:
    version = pytest.importorskip("torch.version", reason="torch is not installed")
    found = find_torch()
    assert found is not None
    assert found.version == version.__version__
    assert (found.platform == "CPU") == (version.cuda is None and version.hip is None)
