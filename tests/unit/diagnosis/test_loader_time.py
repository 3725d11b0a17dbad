from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.diagnosis.loader_time import parts_of, split_loader_time
from pipetune.records.observation import DISK, LOCK, NETWORK, OTHER, PIPE, RUNNING, SLEEP, TaskReading
from pipetune.sampler.stacks.activity import DECODE, FETCH_DISK, FETCH_NETWORK, WORKER_IDLE
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import team
from tests.watch_fakes import rank_reading, task_reading, workers

MUCH = 10 * causes.NETWORK_BYTES_PER_S


def _split(
    *tasks: TaskReading,
    received_per_s: float | None = None,
    stacks: dict[str, int] | None = None,
    has_sockets: bool | None = False,
    kind: str = "process",
    age_s: float | None = 60.0,
) -> dict[str, float]:
    reading = rank_reading(workers=tasks, has_sockets=has_sockets, worker_kind=kind, youngest_worker_s=age_s)
    shares = split_loader_time([reading], [1.0], received_per_s=received_per_s, worker_stacks=stacks)
    assert sum(shares.values()) == pytest.approx(1.0)
    return shares


def test_what_workers_do_divides_the_loaders_time() -> None:
    shares = _split(*workers(3, cpu_frac=0.6, run_delay_frac=0.2, state="D", wait=DISK))

    assert shares == pytest.approx({causes.CPU_DECODE: 0.6, causes.CPU_STARVED: 0.2, causes.DISK: 0.2})


def test_sleep_for_want_of_work_does_not_count() -> None:
    # In order: the first worker holds up all, and the others have delivered.
    busy = task_reading(cpu_frac=0.5, run_delay_frac=0.0, state="D", wait=DISK)

    shares = _split(busy, *team(scenes.IDLE_WORKER, 7))

    assert shares[causes.CPU_DECODE] == pytest.approx((0.5 + 7 * 0.02) / (1 + 7 * 0.02))
    assert causes.UNDETERMINED not in shares


def test_workers_that_do_nothing_explain_nothing() -> None:
    assert _split(*team(replace(scenes.IDLE_WORKER, cpu_frac=0.001), 4)) == {causes.UNDETERMINED: 1.0}


def test_one_worker_at_work_among_many_explains_the_wait() -> None:
    shares = _split(task_reading(cpu_frac=0.9), *team(replace(scenes.IDLE_WORKER, cpu_frac=0.0), 15))

    assert shares[causes.CPU_DECODE] > 0.9


def test_young_workers_are_being_started() -> None:
    assert _split(*workers(2), age_s=0.4) == {causes.WORKER_START: 1.0}
    assert causes.WORKER_START not in _split(*workers(2), age_s=causes.YOUNG_WORKER_S)
    assert causes.WORKER_START not in _split(*workers(2), age_s=None)


def test_a_worker_that_has_no_name_yet_is_being_started() -> None:
    importing = replace(task_reading(cpu_frac=0.9), starting=True)

    assert _split(importing, importing) == {causes.WORKER_START: 1.0}
    assert _split(importing, task_reading(cpu_frac=1.0, run_delay_frac=0.0)) == pytest.approx(
        {causes.WORKER_START: 0.5, causes.CPU_DECODE: 0.5}
    )


def test_readings_count_by_their_weight() -> None:
    decoding, reading = (
        rank_reading(workers=workers(1, cpu_frac=1.0)),
        rank_reading(workers=team(scenes.DISK_WORKER, 1)),
    )

    shares = split_loader_time([decoding, reading], [3.0, 1.0])

    assert shares[causes.CPU_DECODE] == pytest.approx((3 + 0.2) / 4)


def test_the_sleep_of_running_workers_is_divided_like_that_of_sleeping_ones() -> None:
    running = task_reading(cpu_frac=0.5, run_delay_frac=0.0)
    asleep = task_reading(cpu_frac=0.5, run_delay_frac=0.0, state="D", wait=DISK)

    assert _split(running, asleep) == pytest.approx({causes.CPU_DECODE: 0.5, causes.DISK: 0.5})
    assert _split(running, running) == {causes.CPU_DECODE: 1.0}  # nobody was seen asleep: it was for want of work


@pytest.mark.parametrize("wait", [PIPE, LOCK])
def test_a_pipe_or_a_lock_is_want_of_work(wait: str) -> None:
    assert _split(*workers(2, cpu_frac=0.3, run_delay_frac=0.0, state="S", wait=wait)) == {causes.CPU_DECODE: 1.0}


@pytest.mark.parametrize("wait", [SLEEP, OTHER])
def test_a_plain_sleep_is_undetermined(wait: str) -> None:
    shares = _split(*workers(2, cpu_frac=0.3, run_delay_frac=0.0, state="S", wait=wait))

    assert shares == pytest.approx({causes.CPU_DECODE: 0.3, causes.UNDETERMINED: 0.7})


@pytest.mark.parametrize(
    ("stacks", "cause"),
    [
        ({FETCH_NETWORK: 3}, causes.NETWORK),
        ({FETCH_DISK: 3}, causes.DISK),
        ({DECODE: 3}, causes.UNDETERMINED),
    ],
)
@pytest.mark.parametrize("wait", [SLEEP, OTHER, PIPE, LOCK])
def test_stacks_of_workers_say_what_a_vague_sleep_is_for(stacks: dict[str, int], cause: str, wait: str) -> None:
    shares = _split(*workers(2, cpu_frac=0.3, run_delay_frac=0.0, state="S", wait=wait), stacks=stacks)

    assert shares == pytest.approx({causes.CPU_DECODE: 0.3, cause: 0.7})


def test_stacks_of_idle_workers_are_want_of_work() -> None:
    sleeping = workers(2, cpu_frac=0.3, run_delay_frac=0.0, state="S", wait=SLEEP)

    assert _split(*sleeping, stacks={WORKER_IDLE: 5}) == {causes.CPU_DECODE: 1.0}
    assert _split(*sleeping, stacks={WORKER_IDLE: 1, FETCH_NETWORK: 1})[causes.NETWORK] == pytest.approx(0.35 / 0.65)


def test_one_stack_of_a_worker_is_no_rule() -> None:
    sleeping = workers(2, cpu_frac=0.3, run_delay_frac=0.0, state="S", wait=SLEEP)

    assert causes.NETWORK not in _split(*sleeping, stacks={FETCH_NETWORK: 1})


def test_stacks_of_worker_processes_say_nothing_of_threads() -> None:
    sleeping = workers(2, cpu_frac=0.3, run_delay_frac=0.0, state="S", wait=SLEEP)

    assert causes.NETWORK not in _split(*sleeping, stacks={FETCH_NETWORK: 9}, kind="thread")


def test_a_clear_wait_is_believed_before_stacks() -> None:
    reading = team(scenes.DISK_WORKER, 2)

    assert causes.NETWORK not in _split(*reading, stacks={FETCH_NETWORK: 9})
    assert causes.DISK not in _split(*team(scenes.NETWORK_WORKER, 2), stacks={FETCH_DISK: 9})


def test_an_event_loop_with_a_connection_fetches() -> None:
    # aiohttp: asleep in epoll, and on the stack are asyncio and the user's own code.
    waiting = workers(2, cpu_frac=0.2, run_delay_frac=0.0, state="S", wait=PIPE)

    shares = _split(*waiting, stacks={DECODE: 6}, has_sockets=True, received_per_s=MUCH)

    assert shares == pytest.approx({causes.CPU_DECODE: 0.2, causes.NETWORK: 0.8})
    assert causes.NETWORK not in _split(*waiting, stacks={DECODE: 6}, has_sockets=True, received_per_s=10.0)
    idle = _split(*waiting, stacks={WORKER_IDLE: 6}, has_sockets=True, received_per_s=MUCH)
    assert causes.NETWORK not in idle


@pytest.mark.parametrize(
    ("read_bytes", "received_per_s", "cause"),
    [
        (4096, MUCH, causes.DISK),
        (0, MUCH, causes.NETWORK),
        (0, 10.0, causes.DISK),
        (0, None, causes.DISK),
        (None, MUCH, causes.DISK),
    ],
)
def test_bytes_distinguish_a_disk_from_a_network_file_system(
    read_bytes: int | None, received_per_s: float | None, cause: str
) -> None:
    task = replace(scenes.DISK_WORKER, cpu_frac=0.0, run_delay_frac=0.0, read_bytes=read_bytes)

    assert _split(task, received_per_s=received_per_s) == {cause: 1.0}


@pytest.mark.parametrize(
    ("cpu_frac", "delay", "parts"),
    [
        (0.5, 0.2, (0.5, 0.2, 0.3)),
        (2.5, 0.4, (1.0, 0.0, 0.0)),  # a worker with threads of its own uses more than one core
        (0.9, 0.4, (0.9, 0.1, 0.0)),
        (0.5, None, (0.5, 0.0, 0.5)),
        (0.0, 0.0, (0.0, 0.0, 1.0)),
    ],
)
def test_parts_of_an_interval_are_a_whole(
    cpu_frac: float, delay: float | None, parts: tuple[float, float, float]
) -> None:
    assert parts_of(task_reading(cpu_frac=cpu_frac, run_delay_frac=delay)) == pytest.approx(parts)


def test_any_workers_give_whole_shares() -> None:
    rng = random.Random(5)
    for _ in range(300):
        tasks = [
            task_reading(
                cpu_frac=rng.choice([0.0, rng.random(), 2.0]),
                run_delay_frac=rng.choice([None, rng.random()]),
                wait=rng.choice([RUNNING, DISK, NETWORK, PIPE, LOCK, SLEEP, OTHER]),
                read_bytes=rng.choice([None, 0, 10**6]),
            )
            for _ in range(rng.randint(1, 6))
        ]
        stacks = {name: rng.randint(0, 3) for name in (DECODE, FETCH_DISK, FETCH_NETWORK, WORKER_IDLE)}

        shares = _split(
            *tasks, received_per_s=rng.choice([None, 0.0, MUCH]), stacks=rng.choice([None, stacks]),
            has_sockets=rng.choice([None, True]), age_s=rng.choice([None, 0.1, 50.0]),
        )  # fmt: skip

        assert all(share > 0 for share in shares.values())


def test_waiting_for_the_first_batch_of_nobody_is_undetermined() -> None:
    assert split_loader_time([], []) == {causes.UNDETERMINED: 1.0}
