from __future__ import annotations

import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from pipetune.errors import PipetuneError, UsageError
from pipetune.records.batch_size import BatchSizes
from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import Failure
from pipetune.scaling import batch_script as module
from pipetune.scaling.batch_script import ScriptOptions, find_script_batch_size
from tests.unit.scaling.test_batch_size import GIB, World

LOADER = ScriptLoader(
    identity=None, where="train.py:7", written={"batch_size": "args.b"},
    batch_size=32, device="cuda", device_index=0, device_name="GPU 0",
    settings={"num_workers": 2}, loader_class="torch.utils.data.dataloader.DataLoader",
)  # fmt: skip
TAIL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"


class Bench:
    """A script on a device with a memory."""

    world = World(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)
    loader = LOADER
    failure: Failure | None = None
    output = TAIL
    steps: bool | None = True
    """Whether an optimizer makes steps; ``None``: there is none."""
    stopped_while: str | None = None
    """When the user presses Ctrl-C."""
    made: ClassVar[list[Bench]] = []

    def __init__(self, command: tuple[str, ...], log: Path, *, memory: float, on_stage: Any, protection: Any) -> None:
        self.limits: list[int | None] = []
        self._log = log
        self.notes = ["a note"]
        self.closed: list[int] = []
        """After so many batch sizes."""
        self.measured: list[int] = []
        self.made.append(self)

    def close(self) -> None:
        if self.stopped_while == "it is closed":
            signal.raise_signal(signal.SIGINT)
        self.closed.append(len(self.measured))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        if self.stopped_while == "it ends":
            signal.raise_signal(signal.SIGINT)

    def begin(self) -> ScriptLoader:
        self._log.write_text("what it printed")
        return self.loader

    def settle_on(self, own: Any) -> None:
        assert own.batch_size == self.loader.batch_size

    def measure(self, candidate: Any, role: str, conditions: Any) -> tuple[Any, Any]:
        assert role == "ceiling"
        assert (candidate.num_workers, candidate.prefetch_depth) == (0, 0), "nothing is loaded"
        self.measured.append(candidate.batch_size)
        self.limits.append(conditions.workload.gpu_memory_limit_bytes)
        point = self.world.measure(candidate.batch_size)
        result = {
            "gpu_mem_bytes": point.peak_bytes,
            "gpu_allocated_bytes": point.allocated_bytes,
            "gpu_free_bytes": 40 * GIB,
            "gpu_total_bytes": 41 * GIB,
            **({} if self.steps is None else {"optimizer_stepped": self.steps or candidate.batch_size > 50}),
        }
        failure = self.failure or Failure(
            kind="crashed", phase="warmup", message="the script ended with exit code 1", stderr_tail="rank 7: gone"
        )
        if point.out_of_memory and not self.failure:
            with self._log.open("a") as file:
                file.write(f"{self.output}\n{'torchrun says much more' * 1000}\n")
        measured = None if self.failure or point.out_of_memory else SimpleNamespace(samples_per_s=point.samples_per_s)
        recording = SimpleNamespace(result=result if measured else {}, notes=[], stopped=None)
        return SimpleNamespace(measurement=measured, failure=None if measured else failure), recording


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Bench]:
    made = type("Bench", (Bench,), {"made": []})
    monkeypatch.setattr(module, "ScriptBench", made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return made


def find(**more: Any) -> BatchSizes:
    options = ScriptOptions(command=("python", "train.py", "--token", "abc"), **more)
    return find_script_batch_size(options, lambda point: None, lambda size: None, lambda stop: None)


def test_batches_of_one_sample_begin_with_one_and_two(bench: type[Bench]) -> None:
    bench.loader = replace(LOADER, batch_size=1)
    assert [point.batch_size for point in find().points][:2] == [1, 2]


def test_the_largest_and_the_knee_of_a_script(bench: type[Bench], tmp_path: Path) -> None:
    found = find()
    assert [point.batch_size for point in found.points][:2] == [16, 32]
    assert len(found.points) <= 6
    (used,) = bench.made
    assert used.closed == [len(used.measured) - 1], "the largest is measured once more in another start"
    assert used.measured[-1] == found.largest
    limit = int(0.92 * 40 * GIB)
    assert used.limits == [None, *[limit] * (len(used.limits) - 1)], "of the first one, what is free is not known yet"
    assert found.limit_bytes == limit
    truth = bench.world.by_bisection()
    assert found.largest is not None
    assert 0.97 * truth <= found.largest <= truth
    assert found.knee is not None
    assert found.knee <= found.largest
    assert (found.model, found.image_size, found.device, found.total_bytes) == ("train.py", None, "GPU 0", 41 * GIB)
    assert found.script is not None
    assert (found.script.own, found.script.where, found.script.option) == (32, "train.py:7", None)
    assert "abc" not in found.script.command
    assert found.notes == ("a note",)
    assert list(tmp_path.iterdir()) == []


def test_what_is_known_is_kept_after_each_batch_size(bench: type[Bench]) -> None:
    kept: list[BatchSizes] = []
    options = ScriptOptions(command=("python", "train.py"))
    found = find_script_batch_size(options, lambda point: None, lambda size: None, lambda stop: None, keep=kept.append)
    sizes = [len(one.points) for one in kept]
    assert sizes[:2] == [1, 2]
    assert {one.stopped for one in kept[:-1]} == {"it was killed"}
    assert kept[-1] == found


@pytest.mark.parametrize(("moment", "once_more"), [("it is closed", False), ("it ends", True)])
def test_ctrl_c_while_the_script_ends_loses_nothing(bench: type[Bench], moment: str, once_more: bool) -> None:
    bench.stopped_while = moment
    stops: list[KeyboardInterrupt] = []
    options = ScriptOptions(command=("python", "train.py"))
    found = find_script_batch_size(options, lambda point: None, lambda size: None, stops.append)
    assert found.stopped == "interrupted"
    assert found.largest is not None
    assert len(stops) == 1
    (used,) = bench.made
    assert (used.closed == [len(used.measured) - 1]) is once_more


@pytest.mark.parametrize("slope", [0.0, 1e3])
def test_memory_that_is_no_line_at_first(bench: type[Bench], slope: float) -> None:
    """Torch reserves it in steps: two small batches take nearly as much."""
    bench.loader = ScriptLoader(
        **{**{name: getattr(LOADER, name) for name in LOADER.__dataclass_fields__}, "batch_size": 2}
    )
    bench.world = World(1 * GIB, slope, 40 * GIB, 0.05, 3000.0)
    found = find()
    assert found.largest is not None
    sizes = [point.batch_size for point in found.points]
    assert all(later <= 8 * max(sizes[:number]) for number, later in enumerate(sizes) if number)


def test_a_second_start_after_what_did_not_fit(bench: type[Bench]) -> None:
    class Steep(World):
        def measure(self, size: int) -> Any:
            return super().measure(size if size < 200 else 100 * size)

    bench.world = Steep(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)
    found = find()
    failed = [point for point in found.points if point.out_of_memory]
    assert 1 <= len(failed) <= 2
    assert failed[0].failure == "out of GPU memory"
    assert found.largest is not None
    assert found.largest < 208


@pytest.mark.parametrize(("steps", "said"), [(True, False), (None, False), (False, True)])
def test_measurements_without_a_step_of_the_optimizer_are_named(
    bench: type[Bench], steps: bool | None, said: bool
) -> None:
    bench.steps = steps
    notes = [note for note in find().notes if "no step of the optimizer" in note]
    assert bool(notes) == said
    if said:
        small = sorted({size for size in bench.made[0].measured if size <= 50})
        assert f"batches of {', '.join(map(str, small))} (gradient" in notes[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cpu"}, "trains on no CUDA device"),
        ({"batch_size": None}, "is not known"),
        ({"switchable": False, "loader_class": "Pipeline"}, "batches of a Pipeline"),
    ],
)
def test_scripts_whose_batch_size_cannot_be_found(
    bench: type[Bench], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:  # fmt: skip
    values = {name: getattr(LOADER, name) for name in LOADER.__dataclass_fields__}
    bench.loader = ScriptLoader(**{**values, **changes})
    with pytest.raises(UsageError, match=message):
        find()
    assert list(tmp_path.iterdir()) == []


def test_batches_that_cannot_be_resized(bench: type[Bench]) -> None:
    bench.failure = Failure(kind="error", phase="open", message="CannotResizeError: the samples cannot be told apart")
    with pytest.raises(UsageError, match="cannot be given another size: the samples cannot be told apart"):
        find()


def test_a_model_on_several_devices(bench: type[Bench]) -> None:
    bench.failure = Failure(
        kind="error", phase="open", message="CannotMeasureMemoryError: the script's model is on several GPUs"
    )
    with pytest.raises(UsageError, match="the script's model is on several GPUs, and batch sizes are found for"):
        find()


def test_not_even_the_half_fits(bench: type[Bench]) -> None:
    bench.world = World(50 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)
    with pytest.raises(PipetuneError, match="not even batches of 16 fit in the memory that is free") as error:
        find()
    assert not isinstance(error.value, UsageError)


def test_its_own_does_not_fit_any_more(bench: type[Bench]) -> None:
    """Another process has taken memory since."""
    bench.world = World(1 * GIB, 0.1 * GIB, 3.8 * GIB, 0.05, 3000.0)
    found = find(memory=0.09)
    assert found.largest is not None
    assert 20 <= found.largest < 32
    assert sum(point.out_of_memory for point in found.points) <= 2


def test_a_batch_that_the_host_cannot_hold_is_a_bound_too(bench: type[Bench]) -> None:
    class Host(World):
        def measure(self, size: int) -> Any:
            if size > 200:
                bench.failure = Failure(kind="error", phase="open", message="HostMemoryError: a batch of 9 GiB is more")
                return super().measure(10**9)
            bench.failure = None
            return super().measure(size)

    bench.world = Host(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)
    found = find()
    assert found.stopped is None
    assert "a batch of 9 GiB is more" in {point.failure for point in found.points}
    assert found.largest is not None
    assert found.largest <= 200


def test_a_crash_on_the_way_keeps_the_output(bench: type[Bench], tmp_path: Path) -> None:
    class Breaks(World):
        def measure(self, size: int) -> Any:
            if size > 200:
                bench.failure = Failure(kind="crashed", phase="warmup", message="the script ended with exit code 3")
            return super().measure(size)

    bench.world = Breaks(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)
    found = find()
    assert found.stopped == "the script ended with exit code 3"
    assert found.knee is not None
    (log,) = tmp_path.glob("*/script.log")
    assert f"the script's output: {log}" in found.notes


def test_a_failure_says_where_the_output_is(bench: type[Bench], tmp_path: Path) -> None:
    bench.failure = Failure(kind="crashed", phase="open", message="the script ended with exit code 1")
    with pytest.raises(PipetuneError, match="no batch size could be measured: the script ended") as error:
        find()
    (log,) = tmp_path.glob("*/script.log")
    assert error.value.hint == f"see the script's output: {log}"


@pytest.mark.parametrize("options", [{"memory": 0.01}, {"seconds": 0.0}])
def test_options_out_of_range(bench: type[Bench], options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        find(**options)


def test_a_largest_that_does_not_fit_in_another_start_gives_way_to_a_smaller_one(bench: type[Bench]) -> None:
    class Fragments(World):
        def measure(self, size: int) -> Any:
            again = size > 800 and bench.made[0].closed
            return super().measure(10**9 if again else size)

    bench.world = Fragments(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)
    found = find()
    assert bench.made[0].measured[-1] < bench.made[0].measured[-2], "a little smaller"
    assert found.stopped is None


def test_a_start_that_ends_three_times_loses_nothing(bench: type[Bench]) -> None:
    class Gone(World):
        def measure(self, size: int) -> Any:
            if bench.made[0].closed:
                raise PipetuneError("the script ended 3 times in a row")
            return super().measure(size)

    bench.world = Gone(1 * GIB, 42e6, 40 * GIB, 0.05, 3000.0)
    found = find()
    assert found.knee is not None
    assert any("were not measured once more: the script ended 3 times" in note for note in found.notes)
