from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.scaling.cluster import Cluster
from pipetune.scaling.other_clusters import kubernetes_job, skypilot_tasks
from pipetune.scaling.tasks import Task

TASKS = tuple(Task(number=n, label=f"ranks={n}", words=("sweep", f"--ranks={n}", "--dataset", "a b")) for n in (0, 1))


def test_an_indexed_job_has_a_pod_for_each_task() -> None:
    cluster = Cluster(scheduler="kubernetes", image="me/pipetune:1", claim="runs", mount="/shared", gpus_per_node=8,
                      cpus_per_task=16, memory="64G", at_once=1, namespace="vision",
                      variables={"A": "a$$b $(C)"})  # fmt: skip
    text = kubernetes_job(cluster, TASKS, Path("/shared/My Run"), Path("/shared/me"))
    assert text.startswith("# Not tested")
    job = json.loads(text.partition("\n")[2])
    assert (job["kind"], job["metadata"]) == ("Job", {"name": "pipetune-my-run", "namespace": "vision"})
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 1)
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "cpu": "16", "memory": "64Gi"}
    assert container["env"] == [{"name": "A", "value": "a$$$$b $$(C)"}]
    shell = container["command"][2]
    assert "1) set -- sweep --ranks=1 --dataset 'a b' ;;" in shell
    assert 'case "$$JOB_COMPLETION_INDEX" in' in shell, "Kubernetes takes $$ for $"


def test_a_document_for_each_task_of_skypilot() -> None:
    text = skypilot_tasks(
        Cluster(scheduler="skypilot", claim="my-runs", cloud="aws", gpus_per_node="A100:8"),
        TASKS,
        Path("/shared/r"),
        Path("/shared"),
    )
    first, second = text.partition("\n")[2].split("\n---\n")
    assert json.loads(first)["resources"] == {"cloud": "aws", "accelerators": "A100:8"}
    assert json.loads(second)["name"] == "pipetune-r-1"
    assert json.loads(second)["file_mounts"] == {"/shared": {"name": "my-runs", "mode": "MOUNT"}}


def test_a_folder_that_would_vanish_with_the_pod_is_refused() -> None:
    cluster = Cluster(scheduler="kubernetes", image="i", claim="c")
    for folder, cwd in (("/home/me/run", "/shared"), ("/shared/run", "/home/me")):
        with pytest.raises(UsageError, match="is not below /shared"):
            kubernetes_job(cluster, TASKS, Path(folder), Path(cwd))


def test_names_are_those_of_kubernetes() -> None:
    cluster = Cluster(scheduler="kubernetes", image="i", claim="c")
    text = kubernetes_job(cluster, TASKS, Path("/shared") / ("a" * 39 + " b"), Path("/shared"))
    assert json.loads(text.partition("\n")[2])["metadata"]["name"] == f"pipetune-{'a' * 39}"
