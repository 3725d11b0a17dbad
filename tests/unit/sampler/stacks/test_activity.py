from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pipetune
from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.activity import OWN_WAITS, Frame, StackActivity, main_activity
from tests.unit.sampler.stacks.stack_frames import QUEUE_GET, TORCH_LOADER, frame, lines, unqualified

TRAIN = (frame("train", "train.py", 42), frame("<module>", "train.py", 90))
MULTI = (
    frame("_MultiProcessingDataLoaderIter._try_get_data", TORCH_LOADER, 1285),
    frame("_MultiProcessingDataLoaderIter._get_data", TORCH_LOADER, 1444),
    frame("_MultiProcessingDataLoaderIter._next_data", TORCH_LOADER, 1500),
    frame("_BaseDataLoaderIter.__next__", TORCH_LOADER, 733),
)
PINNED_GET = (
    frame("Condition.wait", "threading.py", 331),
    frame("Queue.get", "queue.py", 180),
)
SINGLE = (
    frame("_MapDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py", 54),
    frame("_SingleProcessDataLoaderIter._next_data", TORCH_LOADER, 788),
    frame("_BaseDataLoaderIter.__next__", TORCH_LOADER, 733),
)
#: What Lightning puts around a training loop.
LIGHTNING = (
    frame("_TrainingEpochLoop.advance", "lightning/pytorch/loops/training_epoch_loop.py", 320),
    frame("_FitLoop.run", "lightning/pytorch/loops/fit_loop.py", 218),
    frame("Trainer.fit", "lightning/pytorch/trainer/trainer.py", 560),
    frame("<module>", "train.py", 20),
)
STEP = (
    frame("DataParallel.forward", "model.py", 12),
    frame("Module._call_impl", "torch/nn/modules/module.py", 1773),
    frame("Module._wrapped_call_impl", "torch/nn/modules/module.py", 1762),
)


MAIN = {
    "loader processes": (QUEUE_GET + MULTI + TRAIN, act.LOADER),
    "loader processes and a pin thread": (PINNED_GET + MULTI + TRAIN, act.LOADER),
    "handing out the next indices": (
        (frame("_MultiProcessingDataLoaderIter._try_put_index", TORCH_LOADER), *MULTI[2:], *TRAIN),
        act.LOADER,
    ),
    "a batch has just come": ((*MULTI[2:], *TRAIN), act.LOADER),
    "Lightning around torch": (
        (
            *QUEUE_GET, *MULTI,
            frame("_PrefetchDataFetcher.__next__", "lightning/pytorch/loops/fetchers.py"), *LIGHTNING,
        ),
        act.LOADER,
    ),
    "torchdata": (
        (frame("wait", "threading.py"), frame("ParallelMapper.next", "torchdata/nodes/map.py"), *TRAIN), act.LOADER
    ),
    "no workers": ((frame("MyDataset.__getitem__", "data.py"), *SINGLE, *TRAIN), act.LOADER_INLINE),
    "no workers, inside Pillow": (
        (frame("ImageFile.load", "PIL/ImageFile.py"), frame("MyDataset.__getitem__", "data.py"), *SINGLE, *TRAIN),
        act.LOADER_INLINE,
    ),
    "no workers, inside torch.load": (
        (
            frame("_load", "torch/serialization.py"), frame("load", "torch/serialization.py"),
            frame("MyDataset.__getitem__", "data.py"), *SINGLE, *TRAIN,
        ),
        act.LOADER_INLINE,
    ),
    "no workers, collating": (
        (frame("default_collate", "torch/utils/data/_utils/collate.py"), *SINGLE, *TRAIN), act.LOADER_INLINE
    ),
    "no workers, WebDataset": (
        (
            frame("tar_file_iterator", "webdataset/tariterators.py"),
            frame("_IterableDatasetFetcher.fetch", "torch/utils/data/_utils/fetch.py"), *SINGLE[1:], *TRAIN,
        ),
        act.LOADER_INLINE,
    ),
    "starting workers": (
        (
            frame("Popen._launch", "multiprocessing/popen_fork.py"),
            frame("BaseProcess.start", "multiprocessing/process.py"),
            frame("_MultiProcessingDataLoaderIter.__init__", TORCH_LOADER),
            frame("DataLoader._get_iterator", TORCH_LOADER), frame("DataLoader.__iter__", TORCH_LOADER), *TRAIN,
        ),
        act.LOADER_START,
    ),
    "starting workers by spawn": (
        (
            frame("dump", "multiprocessing/reduction.py"),
            frame("Popen._launch", "multiprocessing/popen_spawn_posix.py"),
            frame("_MultiProcessingDataLoaderIter.__init__", TORCH_LOADER), *TRAIN,
        ),
        act.LOADER_START,
    ),
    "resetting workers that persist": (
        (
            frame("_MultiProcessingDataLoaderIter._reset", TORCH_LOADER), frame("DataLoader.__iter__", TORCH_LOADER),
            *TRAIN,
        ),
        act.LOADER_START,
    ),
    "DALI": (
        (
            frame("Pipeline.share_outputs", "nvidia/dali/pipeline.py"),
            frame("_DaliBaseIterator._get_outputs", "nvidia/dali/plugin/base_iterator.py"),
            frame("DALIGenericIterator.__next__", "nvidia/dali/plugin/pytorch/__init__.py"), *TRAIN,
        ),
        act.LOADER,
    ),
    "SPDL": (
        (*PINNED_GET, frame("Pipeline.get_item", "spdl/pipeline/_pipeline.py"), *TRAIN), act.LOADER
    ),
    "WebDataset's loader": (
        (*QUEUE_GET, *MULTI, frame("WebLoader.__next__", "webdataset/compat.py"), *TRAIN), act.LOADER
    ),
    "a loader of one's own, through a queue": (
        (*PINNED_GET, frame("Prefetcher.__next__", "prefetch.py"), *TRAIN), act.LOADER
    ),
    "saving": (
        (
            frame("_save", "torch/serialization.py"), frame("save", "torch/serialization.py"), *TRAIN,
        ),
        act.CHECKPOINT,
    ),
    "saving safetensors": ((frame("save_file", "safetensors/torch.py"), *TRAIN), act.CHECKPOINT),
    "Transformers saves": (
        (frame("Trainer._save_checkpoint", "transformers/trainer.py"),
         frame("PreTrainedModel.save_pretrained", "transformers/modeling_utils.py"), *TRAIN),
        act.CHECKPOINT,
    ),
    "all-reduce": (
        (
            frame("all_reduce", "torch/distributed/distributed_c10d.py"),
            frame("wrapper", "torch/distributed/c10d_logger.py"), *TRAIN,
        ),
        act.COMMUNICATION,
    ),
    "barrier": ((frame("barrier", "torch/distributed/distributed_c10d.py"), *TRAIN), act.COMMUNICATION),
    "DDP's buffers": (
        (frame("DistributedDataParallel._sync_buffers", "torch/nn/parallel/distributed.py"), *TRAIN), act.COMMUNICATION
    ),
    "torch.cuda.synchronize": ((frame("synchronize", "torch/cuda/__init__.py"), *TRAIN), act.DEVICE_WAIT),
    "JAX": ((frame("block_until_ready", "jax/_src/api.py"), *TRAIN), act.DEVICE_WAIT),
    "pipetune's own device": (
        (frame("EmulatedAccelerator._wait_for_oldest", "pipetune/accelerator/emulated.py"), *TRAIN), act.DEVICE_WAIT
    ),
    "validation": ((frame("accuracy", "metrics.py"), frame("validate", "train.py"), *TRAIN), act.CHECKPOINT),
    "Lightning's validation": (
        (frame("mean", "numpy/core.py"), frame("_EvaluationLoop.run", "lightning/loops.py"),
         frame("_run_validation", "lightning/loops.py"), frame("run_validation", "loop.py"), *TRAIN),
        act.CHECKPOINT,
    ),
    "evaluation that waits for its loader": (
        (*QUEUE_GET, *MULTI, frame("evaluate", "train.py"), *TRAIN), act.LOADER
    ),
    "forward": ((*STEP, *TRAIN), act.MODEL),
    "backward": (
        (
            frame("_engine_run_backward", "torch/autograd/graph.py"), frame("Tensor.backward", "torch/_tensor.py"),
            *TRAIN,
        ),
        act.MODEL,
    ),
    "optimizer": ((frame("_single_tensor_adam", "torch/optim/adam.py"), *TRAIN), act.MODEL),
    "a model of a library": ((frame("Attention.forward", "timm/layers/attention.py"), *TRAIN), act.MODEL),
    "Python of one's own": ((frame("augment", "train.py"), *TRAIN), act.PYTHON),
    "Python inside a library": (
        (frame("Axes.plot", "matplotlib/axes.py"), frame("log", "train.py", 7), *TRAIN), act.PYTHON
    ),
}  # fmt: skip


@pytest.mark.parametrize(("frames", "activity"), MAIN.values(), ids=list(MAIN))
def test_main_threads_activity_is_recognised_by_its_stack(frames: tuple[Frame, ...], activity: str) -> None:
    assert main_activity(frames).activity == activity


@pytest.mark.parametrize(("frames", "activity"), MAIN.values(), ids=list(MAIN))
def test_it_is_recognised_without_the_names_of_classes_too(frames: tuple[Frame, ...], activity: str) -> None:
    assert main_activity(unqualified(frames)).activity == activity


@pytest.mark.parametrize(("frames", "activity"), MAIN.values(), ids=list(MAIN))
def test_the_same_stack_from_a_wheel_elsewhere_is_recognised_alike(frames: tuple[Frame, ...], activity: str) -> None:
    # py-spy shortens what lies on the path of modules; a build of torch from source lies elsewhere.
    moved = tuple(
        seen._replace(file=f"src/{seen.file}") if seen.file.startswith("torch/utils/data/dataloader") else seen
        for seen in frames
    )

    assert main_activity(moved).activity == activity


@pytest.mark.parametrize(
    ("line", "activity"),
    [
        ("losses.append(loss.item())", act.DEVICE_WAIT),
        ("print(f'{loss.cpu()}')", act.DEVICE_WAIT),
        ("scores = out.tolist()", act.DEVICE_WAIT),
        ("stream.synchronize()", act.DEVICE_WAIT),
        ("images = images.to(device, non_blocking=True)", act.COPY),
        ("images, labels = images.cuda(), labels.cuda()", act.COPY),
        ("buffer.copy_(images)", act.COPY),
        ("batch = jax.device_put(batch)", act.COPY),
        ("torch.save(model.state_dict(), path)", act.CHECKPOINT),
        ("pickle.dump(state, file)", act.CHECKPOINT),
        ("for name, value in stats.items():", act.PYTHON),
        ("total = tokenizer.total(text)", act.PYTHON),
        ("", act.PYTHON),
    ],
)
def test_a_built_in_function_is_recognised_by_the_line_that_calls_it(line: str, activity: str) -> None:
    assert main_activity(TRAIN, lines(train=line)).activity == activity


def test_only_the_innermost_line_counts() -> None:
    frames = (frame("augment", "train.py"), *TRAIN)

    assert main_activity(frames, lines(train="losses.append(loss.item())")).activity == act.PYTHON


def test_a_call_that_waits_inside_inline_loading_is_loading() -> None:
    frames = (frame("MyDataset.__getitem__", "data.py"), *SINGLE, *TRAIN)

    seen = main_activity(frames, lines(**{"MyDataset.__getitem__": "return torch.load(path).numpy()"}))

    assert seen == StackActivity(act.LOADER_INLINE, "MyDataset.__getitem__ (data.py:10)")


def test_a_sync_inside_an_evaluation_is_a_wait_for_the_device() -> None:
    frames = (frame("evaluate", "train.py"), *TRAIN)

    assert main_activity(frames, lines(evaluate="correct += hits.item()")).activity == act.DEVICE_WAIT


def test_python_is_placed_at_the_users_innermost_frame() -> None:
    frames = (frame("Axes.plot", "matplotlib/axes.py"), frame("log", "train.py", 7), *TRAIN)

    assert main_activity(frames).where == "log (train.py:7)"


def test_python_without_a_frame_of_the_users_is_placed_somewhere() -> None:
    assert main_activity((frame("run", "celery/app.py", 3),)).where == "run (celery/app.py:3)"
    assert main_activity(()) == StackActivity(act.PYTHON, "? (?:0)")


def test_the_deciding_frame_is_shown() -> None:
    assert main_activity((*QUEUE_GET, *MULTI, *TRAIN)).where == (
        "_MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1285)"
    )


def test_a_function_of_the_users_that_is_called_like_a_collective_is_none() -> None:
    assert main_activity((frame("reduce", "train.py"), *TRAIN)).activity == act.PYTHON


@pytest.mark.parametrize(("file", "function"), [(file, name) for file, names in OWN_WAITS.items() for name in names])
def test_the_waits_of_pipetunes_own_accelerators_exist_and_are_recognised(file: str, function: str) -> None:
    source = Path(pipetune.__file__).parent.parent / file
    defined = {
        node.name for node in ast.walk(ast.parse(source.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)
    }

    assert function in defined
    assert main_activity((frame(f"Accelerator.{function}", file),)).activity == act.DEVICE_WAIT
    assert main_activity((frame(function, "other/drain.py"),)).activity == act.PYTHON


def test_every_accelerator_that_drains_is_known() -> None:
    folder = Path(pipetune.__file__).parent / "accelerator"
    draining = {f"pipetune/accelerator/{path.name}" for path in folder.glob("*.py") if "def drain" in path.read_text()}

    assert draining - {"pipetune/accelerator/contract.py"} == set(OWN_WAITS)
