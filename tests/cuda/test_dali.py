"""DALI decodes into a batch's memory as soon as the host drops it: not before the step on it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda
from tests.photo_set import small_photos

#: A loop that is many steps ahead of its device, over the loader to train with, the measured one and the pasted code.
#: Each step ends with a copy on the device, which reads the batch when the device gets there.
PROGRAM = """
import itertools, sys
from dataclasses import replace
import torch
from tests.cuda import fake_dali
fake_dali.install()
import pipetune, pipetune.training.open_loader as opening
from pipetune.training import choice
from types import SimpleNamespace
from pipetune.loaders.open_loader import open_loader
from pipetune.records.sweep import AcceleratorSpec
from pipetune.report.code import code_for
from tests.photo_set import scan, workload

opening.installed_version = lambda backend: "installed"
chosen = pipetune.Candidate(backend="dali", num_workers=1, prefetch_depth=2, batch_size=4)
work = torch.ones(4, device="cuda:1")
torch.cuda.synchronize(1)

def right(batches):
    seen, pinned = [], []
    for images, labels in itertools.islice(batches, fake_dali.Iterator_.batches):
        for _ in range(3):
            work.add_(1)
        seen.append(images.to("cuda:1", non_blocking=True).clone())
        pinned.append(labels.is_pinned() and (images.is_cuda or images.is_pinned()))
        del images, labels
    torch.cuda.synchronize(1)
    return [batch.cpu().unique().tolist() for batch in seen] == [[n] for n in range(len(seen))], len(seen), all(pinned)

def pasted():
    code = code_for(chosen, root="/d", image_size=32, flat=False, on_gpu=True, run_folder="run")
    names = {}
    exec(code.replace("device_id=0", "device_id=1"), names)
    return names["held"](names["loader"])

found = {}
with torch.cuda.device(1):
    found["pasted"] = right(pasted())
    accelerator = AcceleratorSpec(kind="cuda", name="GPU", device_index=1)
    found["measured"] = right(open_loader(chosen, workload(accelerator=accelerator, image_size=32), scan(sys.argv[1])))
with pipetune.open_loader(chosen, sys.argv[1], image_size=32, device="cuda:1") as loader, torch.cuda.device(1):
    found["trained"] = right(loader)
# After a sweep with an emulated accelerator, in which the CPU decoded.
choice.load = lambda path: SimpleNamespace(
    path=path, result={}, recommended_key=chosen.key, outcomes=[SimpleNamespace(candidate=chosen)],
    info={"workload": {"accelerator": {"kind": "emulated"}, "dataset": sys.argv[1]}})
with pipetune.open_loader("run", sys.argv[1], image_size=32, device="cuda:1") as loader, torch.cuda.device(1):
    found["after_emulated"] = right(loader)
# DALI on the CPU, beside the device that the batches go to.
beside = replace(chosen, backend="dali-cpu")
setting = workload(accelerator=AcceleratorSpec(kind="cuda", name="GPU", device_index=1), image_size=32)
with torch.cuda.device(1):
    found["measured_on_the_cpu"] = right(open_loader(beside, setting, scan(sys.argv[1])))
with pipetune.open_loader(beside, sys.argv[1], image_size=32, device="cuda:1") as loader, torch.cuda.device(1):
    found["trained_on_the_cpu"] = right(loader)
found["device_ids"] = [made["device_id"] for made in fake_dali.Pipeline.made]
found["on_device_0"] = [counted()[name][0] for name in ("kernels", "device_bytes", "contexts")]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("dali")
    photos = small_photos(place / "photos", copies=20)
    env = fake_cuda.environment(cuda_library, place, devices=2, kernel_us=3000)
    result: dict[str, Any] = fake_cuda.run(PROGRAM, env, str(photos))
    return result


ON_THE_CPU = ["after_emulated", "measured_on_the_cpu", "trained_on_the_cpu"]


@pytest.mark.parametrize("kind", ["trained", "measured", "pasted", *ON_THE_CPU])
def test_a_batch_lives_until_its_step_has_ended(found: dict[str, Any], kind: str) -> None:
    assert found[kind][:2] == [True, 12]


@pytest.mark.parametrize("kind", ["trained", "measured", *ON_THE_CPU])
def test_what_lies_on_the_host_is_page_locked(found: dict[str, Any], kind: str) -> None:
    assert found[kind][2]


def test_the_device_that_was_named_decodes_unless_the_cpu_did_when_it_was_measured(found: dict[str, Any]) -> None:
    assert found["device_ids"] == [1, 1, 1, None, None, None]
    assert found["on_device_0"] == [0, 0, 0]
