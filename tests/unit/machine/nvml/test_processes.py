"""Which GPU a process uses: NVML through the real binding on a fake driver, /proc as a folder of plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipetune.machine.nvml import processes
from pipetune.machine.nvml.gpu import NvmlUnavailable
from pipetune.machine.nvml.processes import GpuMatch, gpus_of_process, pids_are_foreign
from pipetune.machine.nvml.visible import GpuUse
from tests.unit.machine.fake_proc import FakeProc

# Which GPU a process uses


def gpu(index: int, *pids: int, **more: Any) -> GpuUse:
    """The device files are numbered backwards, as on a machine where that order is not the PCI bus's."""
    return GpuUse(**{"index": index, "uuid": f"GPU-{index}", "minor": 3 - index, "pids": pids, **more})


def run(
    proc: FakeProc, pid: int, *opened: str, ns: str | None = None, readable: bool = True, **environment: str
) -> None:
    """A process with these files open."""
    proc.process(pid)
    proc.write(f"{pid}/status", f"Name:\tpython\nNSpid:\t{ns or pid}\nNSpgid:\t1\n")
    proc.write(f"{pid}/environ", "\0".join(f"{name}={value}" for name, value in environment.items()) + "\0")
    folder = proc.folder / str(pid) / "fd"
    if not readable:
        folder.touch()  # whoever runs the tests may read any folder, but not list a file
        return
    folder.mkdir()
    for number, target in enumerate(["/dev/null", "socket:[123]", *opened]):
        (folder / str(number)).symlink_to(target)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


FOUR = (gpu(0), gpu(1), gpu(2), gpu(3))
ALL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{number}" for number in range(4)))


def test_nvml_lists_the_process(proc: FakeProc) -> None:
    run(proc, 4242, *ALL_FILES, CUDA_VISIBLE_DEVICES="0")

    uses = (gpu(0, 7), gpu(1, 7, 4242), gpu(2, pids=None), gpu(3, 4242))
    assert gpus_of_process(4242, uses, proc=proc.path) == GpuMatch(indices=(1, 3), way="nvml")


@pytest.mark.parametrize(("readable", "way"), [(True, None), (False, "nvml")])
def test_a_listed_number_is_believed_unless_the_open_files_deny_it(
    proc: FakeProc, readable: bool, way: str | None
) -> None:
    run(proc, 4242, readable=readable)

    assert gpus_of_process(4242, (gpu(0, 4242),), proc=proc.path).way == way


def test_nvml_lists_the_number_that_the_process_has_outside(proc: FakeProc) -> None:
    run(proc, 17, *ALL_FILES, ns="9000\t4242\t17\t3")

    assert gpus_of_process(17, (gpu(0, 3), gpu(1, 4242)), proc=proc.path) == GpuMatch(
        indices=(1,), way="nvml, host PID"
    )


@pytest.mark.parametrize(
    ("environment", "indices"),
    [
        ({"LOCAL_RANK": "2"}, (2,)),  # CUDA was called before the rank had set its device
        ({"LOCAL_RANK": "1"}, (0, 2)),
        ({"CUDA_VISIBLE_DEVICES": "2,0", "LOCAL_RANK": "0"}, (2,)),
        ({}, (0, 2)),
    ],
)
def test_a_rank_with_a_context_on_the_first_gpu_as_well_uses_its_own(
    proc: FakeProc, environment: dict[str, str], indices: tuple[int, ...]
) -> None:
    run(proc, 4242, *ALL_FILES, **environment)
    uses = (gpu(0, 4242, 4243), gpu(1, 4243), gpu(2, 4242), gpu(3))

    assert gpus_of_process(4242, uses, proc=proc.path) == GpuMatch(indices=indices, way="nvml")


def test_a_number_further_in_is_not_the_hosts(proc: FakeProc) -> None:
    run(proc, 4242, "/dev/nvidiactl", ns="4242\t17")

    assert gpus_of_process(4242, (gpu(0, 17), gpu(1)), proc=proc.path) == GpuMatch(unknown=True)


def test_one_device_file_open(proc: FakeProc) -> None:
    run(proc, 4242, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia2")

    assert gpus_of_process(4242, FOUR, proc=proc.path) == GpuMatch(indices=(1,), way="device files")


def test_a_single_device_file_decides_against_the_environment(proc: FakeProc) -> None:
    run(proc, 4242, "/dev/nvidia2 (deleted)", CUDA_VISIBLE_DEVICES="3")

    assert gpus_of_process(4242, FOUR, proc=proc.path) == GpuMatch(indices=(1,), way="device files")


@pytest.mark.parametrize("environment", [{}, {"CUDA_VISIBLE_DEVICES": "3,1,0,2"}, {"CUDA_VISIBLE_DEVICES": "GPU-gone"}])
def test_several_device_files_without_further_signs(proc: FakeProc, environment: dict[str, str]) -> None:
    run(proc, 4242, *ALL_FILES, **environment)

    # Any of them: RankGpus waits until NVML lists the process.
    assert gpus_of_process(4242, FOUR, proc=proc.path) == GpuMatch(indices=(0, 1, 2, 3), way="device files")


@pytest.mark.parametrize(
    ("environment", "indices"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2"}, (2,)),
        ({"CUDA_VISIBLE_DEVICES": "2", "LOCAL_RANK": "3"}, (2,)),  # each rank was given its own
        ({"CUDA_VISIBLE_DEVICES": "3,1", "LOCAL_RANK": "0"}, (3,)),
        ({"CUDA_VISIBLE_DEVICES": "3, 1", "LOCAL_RANK": "1"}, (1,)),
        ({"CUDA_VISIBLE_DEVICES": "3,1", "LOCAL_RANK": "2"}, (1, 3)),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, (1, 3)),
        ({"CUDA_VISIBLE_DEVICES": "3,9,1"}, (3,)),  # CUDA stops at what is not there
        ({"CUDA_VISIBLE_DEVICES": "GPU-3,GPU-0"}, (0, 3)),
        ({"LOCAL_RANK": "2"}, (2,)),
        ({"NVIDIA_VISIBLE_DEVICES": "2"}, (2,)),
        ({"NVIDIA_VISIBLE_DEVICES": "3,2", "LOCAL_RANK": "0"}, (2,)),  # a container counts along the bus
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-3,GPU-1", "CUDA_VISIBLE_DEVICES": "1"}, (3,)),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "1"}, (1,)),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "LOCAL_RANK": "1"}, (1,)),
        ({"NVIDIA_VISIBLE_DEVICES": "6,7", "LOCAL_RANK": "1"}, (1,)),  # the host's numbers, in the container
    ],
)
@pytest.mark.parametrize("opened", [ALL_FILES, ("/dev/nvidiactl",)])
def test_the_environment_decides_where_device_files_do_not(
    proc: FakeProc, opened: tuple[str, ...], environment: dict[str, str], indices: tuple[int, ...]
) -> None:
    run(proc, 4242, *opened, **environment)

    assert gpus_of_process(4242, FOUR, proc=proc.path) == GpuMatch(indices=indices, way="visible devices")


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, ("A100", "V100")),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LOCAL_RANK": "0"}, ("V100",)),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0"}, ("V100", "A100")),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
    ],
)
def test_names_are_of_the_gpus_that_are_visible(
    environment: dict[str, str], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = tuple(GpuUse(index=n, uuid=f"GPU-{n}", name=name) for n, name in enumerate(("A100", "V100")))
    monkeypatch.setattr(processes, "list_gpu_uses", lambda: uses)
    assert processes.visible_gpu_names({"HOME": "/root", **environment}) == names

    def unavailable() -> None:
        raise NvmlUnavailable("no library", reason="no_library")

    monkeypatch.setattr(processes, "list_gpu_uses", unavailable)
    assert processes.visible_gpu_names(environment) == ()


@pytest.mark.parametrize("hidden", ["", "-1"])
@pytest.mark.parametrize("uses", [FOUR, FOUR[:1]])
def test_a_process_from_which_all_gpus_are_hidden(proc: FakeProc, uses: tuple[GpuUse, ...], hidden: str) -> None:
    run(proc, 4242, *ALL_FILES, CUDA_VISIBLE_DEVICES=hidden)

    assert gpus_of_process(4242, uses, proc=proc.path) == GpuMatch()


CUT = (gpu(0, slices=("MIG-a", "MIG-b")), gpu(1))


@pytest.mark.parametrize(
    ("environment", "slice_uuid"),
    [
        ({"CUDA_VISIBLE_DEVICES": "MIG-b"}, "MIG-b"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-b,MIG-a", "LOCAL_RANK": "1"}, "MIG-a"),
        ({"NVIDIA_VISIBLE_DEVICES": "MIG-b", "CUDA_VISIBLE_DEVICES": "0"}, "MIG-b"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0"}, None),
    ],
)
def test_a_slice_is_named_by_the_environment(
    proc: FakeProc, environment: dict[str, str], slice_uuid: str | None
) -> None:
    run(proc, 4242, "/dev/nvidiactl", **environment)

    assert gpus_of_process(4242, CUT, proc=proc.path) == GpuMatch(
        indices=(0,), way="visible devices", slice_uuid=slice_uuid
    )


def test_a_slice_is_named_also_where_the_gpu_was_known(proc: FakeProc) -> None:
    run(proc, 4242, "/dev/nvidia3", CUDA_VISIBLE_DEVICES="MIG-b")
    run(proc, 4243, "/dev/nvidia2", CUDA_VISIBLE_DEVICES="MIG-b")

    assert gpus_of_process(4242, CUT, proc=proc.path) == GpuMatch(indices=(0,), way="device files", slice_uuid="MIG-b")
    assert gpus_of_process(4243, CUT, proc=proc.path) == GpuMatch(indices=(1,), way="device files")


def test_a_uuid_that_begins_like_another(proc: FakeProc) -> None:
    run(proc, 4242, "/dev/nvidiactl", CUDA_VISIBLE_DEVICES="GPU-1")

    uses = (gpu(0, uuid="GPU-10"), gpu(1, uuid="GPU-1"), gpu(2, uuid=None))
    assert gpus_of_process(4242, uses, proc=proc.path).indices == (1,)


@pytest.mark.parametrize(
    ("written", "indices"),
    [
        ("GPU-8932f937", (1,)),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", (1,)),
        ("GPU-8932", (0, 1)),  # of two GPUs: CUDA sees none, so nothing is known
        ("GPU-4,GPU-8932f9", (0, 1)),  # CUDA stops at what is not there
        ("GPU-", (0, 1)),
        ("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0", (1,)),  # as drivers before 470 name a slice
    ],
)
def test_a_uuid_can_be_abbreviated(proc: FakeProc, written: str, indices: tuple[int, ...]) -> None:
    run(proc, 4242, *ALL_FILES, CUDA_VISIBLE_DEVICES=written)

    uses = (
        gpu(0, uuid="GPU-8932ffff-0000-0000-0000-000000000000"),
        gpu(1, uuid="GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
    )
    assert gpus_of_process(4242, uses, proc=proc.path).indices == indices


MIXED = (gpu(0, name="RTX 3060"), gpu(1, name="RTX A6000"), gpu(2, name="RTX A6000"))


@pytest.mark.parametrize(
    ("environment", "indices", "uncertain"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, (0, 1, 2), True),  # for CUDA 0 is the fastest: 1 or 2
        ({"LOCAL_RANK": "1"}, (0, 1, 2), True),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, (0, 1, 2), True),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (0,), False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0", "LOCAL_RANK": "1"}, (0,), False),
        ({"NVIDIA_VISIBLE_DEVICES": "1"}, (1,), False),  # the container runtime counts as NVML does
        ({"NVIDIA_VISIBLE_DEVICES": "1,2", "CUDA_VISIBLE_DEVICES": "0"}, (1,), False),  # two of one kind
        ({"NVIDIA_VISIBLE_DEVICES": "0,2", "CUDA_VISIBLE_DEVICES": "0"}, (0, 2), True),
    ],
)
def test_cuda_counts_gpus_of_several_kinds_in_an_order_of_its_own(
    proc: FakeProc, environment: dict[str, str], indices: tuple[int, ...], uncertain: bool
) -> None:
    run(proc, 4242, "/dev/nvidiactl", **environment)

    found = gpus_of_process(4242, MIXED, proc=proc.path)

    assert (found.indices, found.uncertain) == (indices, uncertain)


def test_a_device_file_settles_what_the_numbers_leave_open(proc: FakeProc) -> None:
    run(proc, 4242, "/dev/nvidiactl", "/dev/nvidia2", CUDA_VISIBLE_DEVICES="0")

    assert gpus_of_process(4242, MIXED, proc=proc.path) == GpuMatch(indices=(1,), way="device files")


@pytest.mark.parametrize("opened", ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/dxg"])
def test_the_only_gpu(proc: FakeProc, opened: str) -> None:
    run(proc, 4242, opened)

    assert gpus_of_process(4242, (gpu(0, minor=None),), proc=proc.path) == GpuMatch(indices=(0,), way="only GPU")
    assert gpus_of_process(4242, (gpu(0, minor=None), gpu(1, minor=None)), proc=proc.path) == GpuMatch(unknown=True)


def test_wsl_has_one_device_file_for_all_gpus(proc: FakeProc) -> None:
    run(proc, 4242, "/dev/dxg", LOCAL_RANK="2")

    assert gpus_of_process(4242, FOUR, proc=proc.path) == GpuMatch(indices=(2,), way="visible devices")
    assert gpus_of_process(4242, (gpu(0), gpu(1, 4242)), proc=proc.path) == GpuMatch(indices=(1,), way="nvml")


@pytest.mark.parametrize("uses", [(), FOUR[:1], FOUR])
def test_a_process_without_a_gpu(proc: FakeProc, uses: tuple[GpuUse, ...]) -> None:
    run(proc, 4242, "/dev/nvme0", LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="0")

    assert gpus_of_process(4242, uses, proc=proc.path) == GpuMatch()


def test_a_process_that_has_ended(proc: FakeProc) -> None:
    assert gpus_of_process(4242, (gpu(0, 4242),), proc=proc.path) == GpuMatch()


def test_unreadable_files(proc: FakeProc) -> None:
    run(proc, 4242, readable=False)

    assert gpus_of_process(4242, (gpu(0),), proc=proc.path) == GpuMatch()


def test_a_file_that_the_kernel_will_not_name(proc: FakeProc) -> None:
    run(proc, 4242)
    (proc.folder / "4242" / "fd" / "9").touch()  # no link: reading it fails, as without the right to

    assert gpus_of_process(4242, (gpu(0, 4242),), proc=proc.path).way == "nvml"


# Whose numbers NVML reports


def test_numbers_of_the_host(proc: FakeProc) -> None:
    run(proc, 17, *ALL_FILES)
    run(proc, 4243)  # by chance the number of some other process

    assert pids_are_foreign((gpu(0, 4242), gpu(1, 4243), gpu(2, pids=None)), proc.path)


@pytest.mark.parametrize("readable", [True, False])
def test_pids_of_this_namespace(proc: FakeProc, readable: bool) -> None:
    run(proc, 4243, "/dev/nvidiactl", readable=readable)

    assert not pids_are_foreign((gpu(0, 4242, 4243),), proc.path)


@pytest.mark.parametrize("uses", [(), (gpu(0),), (gpu(0, pids=None),)])
def test_no_numbers_at_all(proc: FakeProc, uses: tuple[GpuUse, ...]) -> None:
    assert not pids_are_foreign(uses, proc.path)
