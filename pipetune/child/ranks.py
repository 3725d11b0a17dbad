"""Ranks that share a host, measured at the same time: one process that imports torch and forks one for each rank.

That process runs no loader and asks no device anything. It looks after the ranks: where one fails, it says which and
ends the others, and where they wait for one, it says for which. All are in one process group, which the parent follows
and ends as a whole, so that cores and memory are those of all ranks.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pipetune.accelerator.common_steps import WORDS, CommonSteps
from pipetune.candidates.rank_cores import cores_of_rank
from pipetune.child.forked import draw_seeds, end_process
from pipetune.child.rank_pipes import RankPipes
from pipetune.machine.numa import cores_near_pci, numa_nodes, side_by_side
from pipetune.measure import wire
from pipetune.measure.phases import Question
from pipetune.processes.board import Board
from pipetune.processes.parent_death import die_with_parent

#: Words of a row: what a rank has reached, and how many steps it has taken; those of :class:`CommonSteps` follow.
_STAGE, _STEPS, _COMMON = 0, 1, 2
READY, WARM, DONE, STOPPED, MEASURED = 1, 2, 3, 4, 5
#: The rank has reported a failure by itself.
_FAILED = -1
#: The failure's phase by the stage that was reached.
_PHASES = {0: "open", READY: "warmup", WARM: "timed", DONE: "timed"}
#: Time between two looks at the ranks (s), and without any progress until it is said for which ones the others wait.
_LOOK_S, STUCK_S = 0.5, 5.0
#: Longest time for ranks to end (s), and time between two looks whether they have.
_END_S, _CHECK_S = 5.0, 0.01


@dataclass(frozen=True, slots=True)
class Place:
    """One rank's place among the others."""

    rank: int
    ranks: int
    board: Board
    common: CommonSteps | None
    """The steps that all ranks end together; ``None``: each is a job of its own."""
    leader: int
    """PID of the process that looks after the ranks."""

    def reach(self, stage: int) -> None:
        """Show that this rank has got so far."""
        if self.board.seen(self.rank, _STAGE) < stage:
            self.board.show((_STAGE, stage))

    def wait(self, stage: int) -> None:
        """Wait until all ranks have got so far."""
        self.reach(stage)
        self.board.wait(lambda: self._all(stage))

    def step(self) -> None:
        """This rank has taken a step."""
        self.board.note(_STEPS, self.board.seen(self.rank, _STEPS) + 1)

    def all_warm(self) -> bool:
        """See :class:`pipetune.measure.phases.Others`."""
        self.reach(WARM)
        return self._all(WARM)

    def all_done(self) -> bool:
        """See :class:`pipetune.measure.phases.Others`."""
        self.reach(DONE)
        return self._all(DONE)

    def stop(self) -> None:
        """This rank takes no more steps."""
        if self.common is not None:
            self.common.end()
        self.wait(STOPPED)

    def _all(self, stage: int) -> bool:
        return min(self.board.all_seen(_STAGE)) >= stage


class RankSender(wire.Sender):
    """A rank's end of its pipe: each line says which rank it is from."""

    def __init__(self, fd: int, rank: int) -> None:
        super().__init__(fd)
        self._rank = rank

    def send(self, kind: str, **fields: Any) -> None:
        """Write one line completely."""
        self.write(wire.encode_message(kind, rank=self._rank, **fields))


def measure_ranks(fd: int, request: wire.Request, measure: Callable[[wire.Sender, wire.Request, Place], int]) -> int:
    """Measure with as many ranks as the request has; returns an exit status.

    To be called once everything is imported that all of them need, and before any thread is started.

    Args:
        fd: of the pipe to the parent.
        measure: one rank's measurement; returns its exit status.
    """
    workload = request.workload
    board = Board(workload.ranks, _COMMON + WORDS)
    pipes = RankPipes(workload.ranks)
    leader = os.getpid()
    gc.collect()
    gc.freeze()  # collecting would write to every object's page, which a rank then copies
    ranks: dict[int, int] = {}
    for rank in range(workload.ranks):
        try:
            pid = os.fork()
        except OSError:
            _end(ranks)
            raise
        if pid == 0:
            common = CommonSteps(board, rank, first_word=_COMMON) if workload.sync == "step" else None
            place = Place(rank, workload.ranks, board, common, leader)
            os.close(fd)
            _become_rank(place, RankSender(pipes.of_rank(rank), rank), request, measure)
        ranks[pid] = rank
    pipes.open()
    return _look_after(ranks, board, pipes, wire.Sender(fd))


def _become_rank(
    place: Place, sender: RankSender, request: wire.Request, measure: Callable[[wire.Sender, wire.Request, Place], int]
) -> None:
    """Never returns."""
    status = 1
    try:
        die_with_parent(place.leader)
        place.board.join(place.rank)
        count = str(place.ranks)
        # As torchrun sets them; the user's own loader may ask for its rank.
        os.environ.update(
            RANK=str(place.rank), LOCAL_RANK=str(place.rank), WORLD_SIZE=count, LOCAL_WORLD_SIZE=count
        )  # fmt: skip
        _bind(request.workload.bind, place, request.workload.accelerator.kind)
        draw_seeds()
        if "OMP_NUM_THREADS" not in os.environ:
            os.environ["OMP_NUM_THREADS"] = "1"
            sys.modules["torch"].set_num_threads(1)
        accelerator = request.workload.accelerator
        if accelerator.device_index is not None:
            accelerator = replace(accelerator, device_index=place.rank)
        workload = replace(request.workload, accelerator=accelerator)
        question = None if request.question is None else _of_rank(request.question, place.ranks)
        status = measure(sender, replace(request, workload=workload, question=question), place)
        if status:
            place.board.show((_STAGE, _FAILED))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        end_process(status)


def _of_rank(question: Question, ranks: int) -> Question:
    """The question where rates are one rank's: those of the parent are the host's."""
    alone, full = question.alone_samples_per_s, question.full_samples_per_s
    return replace(
        question, levels=tuple(level / ranks for level in question.levels),
        alone_samples_per_s=None if alone is None else alone / ranks,
        full_samples_per_s=None if full is None else full / ranks,
    )  # fmt: skip


def _bind(bind: str, place: Place, accelerator: str) -> None:
    near = cores_near_pci(_address_of(place.rank)) if bind == "numa" and accelerator == "cuda" else frozenset[int]()
    cores = cores_of_rank(bind, side_by_side(os.sched_getaffinity(0)), numa_nodes(), place.rank, place.ranks, near)
    if cores is not None:
        os.sched_setaffinity(0, cores)


def _address_of(device: int) -> str:
    """Where a CUDA device is on the PCI bus; ``''``: torch does not tell."""
    found = sys.modules["torch"].cuda.get_device_properties(device)
    domain, bus, slot = (getattr(found, f"pci_{name}_id", None) for name in ("domain", "bus", "device"))
    return "" if domain is None or bus is None or slot is None else f"{domain:04x}:{bus:02x}:{slot:02x}.0"


def _look_after(ranks: dict[int, int], board: Board, pipes: RankPipes, sender: wire.Sender) -> int:
    """Pass on what the ranks send until all have ended; where one fails, end the others. Returns an exit status."""
    stuck = _Stuck(board, sender)
    while ranks:
        pid, state = os.waitpid(-1, os.WNOHANG)
        if not pid:
            pipes.pass_on(sender, _LOOK_S)
            stuck.look()
            continue
        pipes.pass_rest_on(sender)
        rank = ranks.pop(pid, None)
        status, stages = os.waitstatus_to_exitcode(state), board.all_seen(_STAGE)
        if rank is None or (status == 0 and stages[rank] >= MEASURED):
            continue
        if stages[rank] != _FAILED:
            sender.send("rank_ended", ended_rank=rank, returncode=status, phase=_PHASES.get(stages[rank], "close"))
        _end(ranks)
        return 1
    return 0


def _end(ranks: Iterable[int]) -> None:
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_S
    left = set(ranks)
    while left and time.monotonic() < deadline:  # in uninterruptible sleep a process ignores SIGKILL
        left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
        time.sleep(_CHECK_S)


class _Stuck:
    """Says for which ranks the others wait, where they have made no step for some time."""

    def __init__(self, board: Board, sender: wire.Sender) -> None:
        self._board, self._sender = board, sender
        self._seen: list[list[int]] = [[] for _ in range(board.members)]
        self._since = [time.monotonic()] * board.members
        self._named: list[int] = []
        self._looked = 0.0

    def look(self) -> None:
        """Compare with the look before, where that is some time ago."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        for rank in range(self._board.members):
            seen = [self._board.seen(rank, word) for word in range(_COMMON + WORDS)]
            if seen != self._seen[rank]:
                self._seen[rank], self._since[rank] = seen, now
        late = [
            rank for rank, since in enumerate(self._since) if now - since >= STUCK_S and not self._board.waits(rank)
        ]
        named = late if len(late) < self._board.members else []
        if named != self._named:
            self._named = named
            self._sender.send("waits_for", ranks=named)
