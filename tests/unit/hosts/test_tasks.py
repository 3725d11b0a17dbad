"""Tasks and answers as they travel."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pipetune.hosts.tasks import Answer, Task, answer_of, decode_answer, decode_task, encode, own_ceiling
from pipetune.measure.recording import Recording
from pipetune.records.sweep import AcceleratorSpec, HostShare, RankShare, StepTime, Workload
from tests import fakes

WORKLOAD = Workload(
    dataset="/data", index_path="/runs/index.json", accelerator=AcceleratorSpec(kind="emulated", name="EMULATED 100/s"),
    model="resnet50", image_size=224, precision="emulated", seconds=4.0, warmup_limit_s=8.0, cache="warm", seed=3,
    ranks=2,
)  # fmt: skip
TASK = Task(
    candidate=fakes.outcome().candidate, role="candidate", attempt=1, workload=WORKLOAD, run_noise=0.02,
    ceiling=fakes.measurement(), timeout_s=None, new_process=True, device_noise=0.01, index=1,
)  # fmt: skip


def share(host: int, rate: float) -> HostShare:
    return HostShare(
        host=host, name=f"n{host}", samples_per_s=rate, ci95=(0.9 * rate, 1.1 * rate), goodput=None, data_wait_frac=0.1,
        accelerator_idle_frac=0.1, cores_used=1.0, read_bytes_per_s=None, together_frac=1.0,
    )  # fmt: skip


def step(end_ns: int) -> StepTime:
    return StepTime(
        t_start_ns=end_ns - 10, data_wait_s=0, h2d_s=None, compute_s=0, idle_s=0, t_end_ns=end_ns, samples=1
    )


def test_a_task_comes_as_it_went() -> None:
    assert decode_task(json.loads(json.dumps(encode(TASK)))) == TASK


def test_an_answer_says_when_it_was_timed_since_all_began() -> None:
    recording = Recording(warmup=[step(3_000_000_000)], timed=[step(4_000_000_000), step(7_500_000_000)])
    answer = answer_of(fakes.outcome(), recording, began_ns=1_000_000_000)
    assert (answer.timed_from_s, answer.timed_until_s) == (2.0, 6.5)
    assert (answer.steps_s, answer.steps_from_s) == ((3.5,), 3.0)
    assert decode_answer(json.loads(json.dumps(encode(answer)))) == answer


def test_steps_of_ranks_that_do_not_wait_for_each_other_are_not_told() -> None:
    recording = Recording(warmup=[step(3_000_000_000)], timed=[step(4_000_000_000), step(7_500_000_000)])
    assert answer_of(fakes.outcome(), recording, began_ns=0, in_step=False).steps_s == ()


def test_an_answer_without_a_measurement_has_no_times() -> None:
    failed = fakes.outcome(failure=fakes.outcome().failure, rate=1.0)
    failed = replace(failed, measurement=None)
    assert answer_of(failed, Recording(), 0) == Answer(outcome=failed, timed_from_s=None, timed_until_s=None)


def test_each_host_has_its_own_ceiling() -> None:
    rank = RankShare(rank=0, samples_per_s=500.0, goodput=None, data_wait_frac=0, accelerator_idle_frac=0,
                     others_wait_frac=0)  # fmt: skip
    ceiling = fakes.measurement(samples_per_s=1000.0, hosts=(share(0, 1000.0), share(1, 1500.0)), ranks=(rank, rank))
    own = own_ceiling(ceiling, 1)
    assert own is not None
    assert (own.samples_per_s, own.hosts) == (1500.0, ())
    assert own.ci95 == pytest.approx((1350.0, 1650.0))
    assert [one.samples_per_s for one in own.ranks] == [750.0, 750.0]


def test_of_one_host_the_ceiling_is_what_it_was() -> None:
    ceiling = fakes.measurement()
    assert own_ceiling(ceiling, 1) is ceiling
    assert own_ceiling(None, 1) is None
