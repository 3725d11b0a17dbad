"""The same array for Kubernetes and for SkyPilot. Pure; neither was tried on a cluster, and both say so.

JSON is YAML, so that no words of a command can be read as something else.
Sources: Kubernetes' documentation of Indexed Jobs (batch/v1, ``completionMode: Indexed``), SkyPilot's of its task YAML.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipetune.errors import UsageError
from pipetune.scaling.cluster import Cluster
from pipetune.scaling.slurm import words_of_task
from pipetune.scaling.tasks import Task, require_one_host

_NOT_TESTED = "# Not tested on a cluster: read it before you use it."


def kubernetes_job(cluster: Cluster, tasks: Sequence[Task], folder: Path, cwd: Path) -> str:
    """An Indexed Job with a pod for each task; a pod that is lost is started again, and goes on.

    Raises:
        UsageError: the folder is not on the shared volume, or a task has several hosts.
    """
    _require_shared(cluster, folder, cwd)
    require_one_host(tasks, "on Kubernetes")
    container: dict[str, Any] = {
        "name": "pipetune", "image": cluster.image,
        # Kubernetes itself replaces $(NAME) in a command and in values, and takes $$ for $.
        "command": ["/bin/sh", "-c", _shell(cluster, tasks, folder, cwd, "$JOB_COMPLETION_INDEX").replace("$", "$$")],
        "env": [{"name": name, "value": value.replace("$", "$$")} for name, value in cluster.variables.items()],
        "volumeMounts": [{"name": "shared", "mountPath": cluster.mount}, {"name": "shm", "mountPath": "/dev/shm"}],
        "resources": {"limits": _limits(cluster)},
    }  # fmt: skip
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": f"pipetune-{_plain(folder.name)}",
                     **({"namespace": cluster.namespace} if cluster.namespace else {})},
        "spec": {
            "completionMode": "Indexed", "completions": len(tasks), "parallelism": cluster.at_once or len(tasks),
            "backoffLimit": 3 * len(tasks),
            "template": {"spec": {
                "restartPolicy": "Never", "containers": [container],
                # One pod on a host: it is being measured.
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                    "labelSelector": {"matchLabels": {"app": "pipetune"}}, "topologyKey": "kubernetes.io/hostname",
                }]}},
                "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": cluster.claim}},
                            {"name": "shm", "emptyDir": {"medium": "Memory"}}],
            }, "metadata": {"labels": {"app": "pipetune"}}},
        },
    }  # fmt: skip
    return f"{_NOT_TESTED}\n{json.dumps(job, indent=2)}\n"


def skypilot_tasks(cluster: Cluster, tasks: Sequence[Task], folder: Path, cwd: Path) -> str:
    """A YAML document for each task, to be launched one after the other or at once (``sky jobs launch``).

    Raises:
        UsageError: the folder is not on the shared disk, or a task has several hosts.
    """
    _require_shared(cluster, folder, cwd)
    require_one_host(tasks, "with SkyPilot")
    documents = []
    for task in tasks:
        resources: dict[str, Any] = {name: value for name, value in (
            ("cloud", cluster.cloud), ("image_id", f"docker:{cluster.image}" if cluster.image else None),
            ("accelerators", None if cluster.gpus_per_node is None else str(cluster.gpus_per_node)),
        ) if value is not None}  # fmt: skip
        document = {
            "name": f"pipetune-{_plain(folder.name)}-{task.number}", "resources": resources, "envs": cluster.variables,
            "file_mounts": {cluster.mount: {"name": cluster.claim, "mode": "MOUNT"}},
            "run": _shell(cluster, [task], folder, cwd, str(task.number)),
        }  # fmt: skip
        documents.append(json.dumps(document, indent=2))
    return f"{_NOT_TESTED}\n" + "\n---\n".join(documents) + "\n"


def _shell(cluster: Cluster, tasks: Sequence[Task], folder: Path, cwd: Path, index: str) -> str:
    lines = [
        f"cd {shlex.quote(str(cwd))} || exit 2",
        *cluster.setup,
        f"run={shlex.quote(str(folder))}",
        f'out="$run/task-{index}"',
        *words_of_task(tasks, index),
        f'exec {shlex.quote(cluster.python)} -m pipetune "$@"',
    ]
    return "\n".join(lines)


def _require_shared(cluster: Cluster, folder: Path, cwd: Path) -> None:
    """Refuse what would vanish with a pod.

    Raises:
        UsageError: the folder is not on the shared volume.
    """
    for what, path in (("--out", folder), ("the working folder", cwd)):
        if not path.is_relative_to(cluster.mount):
            raise UsageError(
                f"{what} {path} is not below {cluster.mount}, which all tasks share",
                hint=f"name one there, or another mount in the cluster file: --out {cluster.mount}/runs/new",
            )


def _limits(cluster: Cluster) -> dict[str, str]:
    found = {}
    if cluster.gpus_per_node is not None:
        found["nvidia.com/gpu"] = str(cluster.gpus_per_node).rpartition(":")[2]
    if cluster.cpus_per_task is not None:
        found["cpu"] = str(cluster.cpus_per_task)
    if cluster.memory != "0":
        found["memory"] = f"{cluster.memory}i" if cluster.memory[-1].isalpha() else f"{cluster.memory}Mi"
    return found


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower())[:40].strip("-") or "run"
