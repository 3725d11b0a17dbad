"""Results, logs and archives of a lease: complete at any moment, and without hosts and folders."""

from __future__ import annotations

import errno
import json
import socket
import tarfile
from pathlib import Path

import pytest

from benchmarks.bench import ROOT
from benchmarks.gpu.leasing import archive, clean, lease
from benchmarks.gpu.leasing.device import Device, why_lost
from benchmarks.gpu.leasing.findings import Findings, write_json
from benchmarks.gpu.leasing.outcome import NOT_PROVEN, read_results
from benchmarks.gpu.leasing.run_stage import finish
from pipetune.machine.nvml.gpu import GpuInfo, NvmlUnavailable
from pipetune.machine.nvml.gpu_state import GpuState


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    file = tmp_path / "decode.json"
    write_json(file, {"stage": "decode", "cut": True})
    return Findings(file, "cuda:1", tmp_path, 100)


def test_everything_is_on_the_disk_at_once(findings: Findings, tmp_path: Path) -> None:
    findings.keep("rate", 1.5)
    findings.append("rows", {"a": float("nan"), "path": Path("/home/somebody/x.jpg")})
    findings.say("a line")
    findings.report_unproven("DALI", "no time")

    content = json.loads((tmp_path / "decode.json").read_text())

    assert content["numbers"] == {"rate": 1.5, "rows": [{"a": None, "path": "…/x.jpg"}]}
    assert content["lines"] == ["a line"]
    assert content["not_proven"][0]["command"] == "bash benchmarks/gpu/lease.sh --only decode"
    assert content["cut"] is True  # until the lease says that it has ended
    (tried,) = read_results(tmp_path)["decode"]
    assert tried.has_numbers
    assert tried.status == NOT_PROVEN


def test_device_and_time(findings: Findings) -> None:
    assert findings.is_cuda
    assert findings.index == 1
    assert 90 < findings.remaining_s <= 96


def test_a_stage_that_was_cut_and_lacked_a_package_says_both(findings: Findings, tmp_path: Path) -> None:
    from benchmarks.gpu.leasing.needs import Missing

    content = {"stage": "decode", "cut": True, "seconds": 70.0}
    content = finish(tmp_path / "decode.json", content, [Missing("dali", "no dali", "get dali")], rehearsal=None)
    assert content["status"] == NOT_PROVEN
    assert [item["need"] for item in content["not_proven"]] == [None, "dali"]
    assert content["not_proven"][1]["command"] == "get dali && bash benchmarks/gpu/lease.sh --only decode"
    assert json.loads((tmp_path / "decode.json").read_text()) == content


def test_an_emulated_device_proves_nothing(tmp_path: Path) -> None:
    content = finish(tmp_path / "a.json", {"stage": "facts", "seconds": 1.0}, [], rehearsal="the device is emulated")
    assert content["status"] == NOT_PROVEN


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("saved in /home/me/runs/a.json", "saved in …/a.json"),
        (f"{ROOT}/pipetune/errors.py, line 3", "CHECKOUT/pipetune/errors.py, line 3"),
        ("/usr/lib/libcuda.so.1 and /dev/shm/x", "/usr/lib/libcuda.so.1 and /dev/shm/x"),
        ("https://example.org/a/b/c and 3/4", "https://example.org/a/b/c and 3/4"),
        ("GPU 0: H100 (UUID: GPU-0f2a4c6e-0000-1111-2222-abcdef012345)", "GPU 0: H100 (UUID: UUID)"),
        ("    Serial Number                   : 1652922000001", "    Serial Number                   : …"),
    ],
)
def test_clean_text(text: str, cleaned: str) -> None:
    assert clean.clean_text(text) == cleaned


def test_the_hosts_name_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-17")
    clean._host.cache_clear()
    try:
        found = clean.clean_json({"hostname": "gpu-node-17", "text": "on gpu-node-17: gpu-node-170"})
    finally:
        clean._host.cache_clear()
    assert found == {"text": "on host: gpu-node-170"}


def test_pages_keep_their_tags() -> None:
    page = f"<td>{ROOT}/x</td></tr></table><p>1</p></div>"
    assert clean.clean_names(page) == "<td>CHECKOUT/x</td></tr></table><p>1</p></div>"


def test_logs_and_run_folders_are_published(tmp_path: Path) -> None:
    work = archive.make_work_folder(tmp_path, "sweep")
    (work / archive.LOG).write_text("in /home/me/a.py\n")
    run = work / archive.RUNS / "run"
    run.mkdir()
    (run / "run.json").write_text('{"cwd": "/home/me/x/y"}')
    (run / "raw.bin").write_bytes(b"\xff\x00/home/me/x/y")

    files = archive.publish(tmp_path, "sweep")

    assert [file.name for file in files] == ["sweep.log", "sweep.tar.xz"]
    assert (tmp_path / "sweep.log").read_text() == "in …/a.py\n"
    with tarfile.open(tmp_path / "sweep.tar.xz") as packed:
        contents = {name: packed.extractfile(name).read() for name in packed.getnames()}  # type: ignore[union-attr]
        assert {(member.uid, member.uname) for member in packed.getmembers()} == {(0, "")}
    assert contents == {"run/run.json": b'{"cwd": "\xe2\x80\xa6/y"}', "run/raw.bin": b"\xff\x00/home/me/x/y"}
    assert not work.exists()


def test_what_a_killed_lease_left_is_published(tmp_path: Path) -> None:
    (archive.make_work_folder(tmp_path, "sweep-2") / archive.LOG).write_text("cut")
    assert archive.list_abandoned(tmp_path) == ["sweep-2"]
    assert [file.name for file in archive.publish(tmp_path, "sweep-2")] == ["sweep-2.log"]
    assert archive.list_abandoned(tmp_path) == []


def test_the_archive_unpacks_into_the_folder_of_results(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "some-gpu"
    folder.mkdir(parents=True)
    for name in ("a.json", "a.log", "a.tar.xz"):
        (folder / name).write_text(name)

    left_out = archive.write_archives(tmp_path / "out", "lease-x", folder, [*folder.iterdir(), folder / "gone.json"])

    assert left_out == []
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lease-x.tar.xz"]
    with tarfile.open(tmp_path / "out" / "lease-x.tar.xz") as packed:
        assert sorted(packed.getnames()) == ["some-gpu/a.json", "some-gpu/a.log", "some-gpu/a.tar.xz"]


def test_a_full_disk_ends_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "results" / "some-gpu", tmp_path / "out"
    archive.make_work_folder(folder, "sweep").joinpath(archive.LOG).write_text("cut")
    out.mkdir()
    options = lease.parse_options(["--results", str(folder.parent), "--out", str(out)])
    measured = lease.Lease(options, Device("Some GPU", None, None, "some-gpu"), folder, deadline=0)
    measured.save()
    (archived,) = out.iterdir()
    size = archived.stat().st_size

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive, "_add", refuse)
    measured.save()

    assert "NOT PACKED: [Errno 28] No space left on device" in capsys.readouterr().out
    assert [(path, path.stat().st_size) for path in out.iterdir()] == [(archived, size)]


def test_archives_are_no_larger_than_what_comes_back(tmp_path: Path) -> None:
    sizes = {"a.json": 10, "b.tar.xz": 80, "c.tar.xz": 80, "d.tar.xz": 15, "huge.tar.xz": 101}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)

    groups, left_out = archive.split_by_size(list(tmp_path.iterdir()), limit_bytes=100)

    assert [[path.name for path in group] for group in groups] == [["a.json", "b.tar.xz"], ["c.tar.xz", "d.tar.xz"]]
    assert [path.name for path in left_out] == ["huge.tar.xz"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (GpuState(gpus=(GpuInfo(index=0),)), None),
        (GpuState(gpus=(GpuInfo(index=0, problem="GPU is lost"),)), "GPU is lost"),
        (GpuState(problem=NvmlUnavailable("NVML did not answer", reason="no_answer")), "NVML did not answer"),
        (GpuState(problem=NvmlUnavailable("no library", reason="no_library")), None),
    ],
)
def test_a_lost_gpu(state: GpuState, why: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.leasing.device.ask_gpus", lambda limit_s: state)
    assert why_lost() == why
