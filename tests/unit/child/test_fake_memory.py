from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="fake tensors are torch's")
pytest.importorskip("torchvision", reason="models are torchvision's")
pytestmark = pytest.mark.thorough

#: In a process of its own, because models made after it are not usable.
PROGRAM = """
import json, sys
from pipetune.child.fake_memory import predicted
print(json.dumps([predicted(name, "fp32", int(size), [2, 8], checkpointing=bool(kept))
                  for name, size in zip(sys.argv[1::2], sys.argv[2::2]) for kept in (0, 1)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "models",
    [
        pytest.param(("resnet18",), id="residual blocks"),
        pytest.param(("vit_b_32", "regnet_y_400mf", "vgg11"), id="other forms"),
    ],
)
def test_checkpointing_takes_less_for_each_sample_and_as_much_for_the_weights(models: tuple[str, ...]) -> None:
    """Also of models with transformer layers, with a form that they compute, and of layers alone."""
    words = [word for name in models for word in (name, "224" if name.startswith("vit") else "64")]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    found = json.loads(done.stdout)
    assert len(found) == 2 * len(models)
    for plain, kept in zip(found[::2], found[1::2], strict=True):
        assert plain[1] > plain[0] > 1 << 20
        assert 0 < kept[1] - kept[0] < 0.9 * (plain[1] - plain[0])
        assert kept[0] <= plain[0]


#: A model whose two layers have one weight: what it takes in truth, and as predicted; and is it one weight still?
SHARED = """
import functools, json, torch, torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from pipetune.accelerator.train_step import TrainingStep
from pipetune.child import fake_memory
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024)
        self.second.weight = self.first.weight
    def forward(self, images):
        return self.second(self.first(images.flatten(1)[:, :1].expand(-1, 1024)))
torchvision.models.get_model = lambda name, **options: Two()
step = TrainingStep("alexnet", "fp32", torch.device("cpu"))
images, labels = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
step.run(images, labels)
real = fake_memory._peak_of(step, images, labels)
with FakeTensorMode() as fake:
    model = fake_memory._with_fake_weights(torchvision.models.get_model, fake, "alexnet")
one = model.first.weight is model.second.weight and model.first.bias is not model.second.bias
print(json.dumps([real, fake_memory.predicted("alexnet", "fp32", 8, [2])[0], one]))
"""


def test_weights_that_layers_share_are_shared_in_the_prediction() -> None:
    done = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    real, predicted, one = json.loads(done.stdout)
    assert one
    assert predicted == pytest.approx(real, rel=0.01)
