"""``pipetune sweep --hosts``: which host this is, and what it does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from pipetune.cli.output import echo
from pipetune.cli.parse import value
from pipetune.errors import UsageError, exit_code_of
from pipetune.hosts.place import HostPlace, find_place, parse_hosts
from pipetune.measure import harness
from pipetune.sweeping.loop import Measure

if TYPE_CHECKING:
    from pipetune.hosts.coordinator import Coordinator


def host_place(hosts: str | None, *, own: bool = False) -> HostPlace | None:
    """This host among the others; ``None``: it is alone.

    Args:
        own: what is to be measured is the user's own script or loader.

    Raises:
        UsageError: no launcher says which host it is, or hosts do not measure such a thing together.
    """
    if hosts is None:
        return None
    if own:
        raise UsageError("--hosts is for a data set, not for a script or a loader of your own",
                         hint="measure that on one host, without --hosts")  # fmt: skip
    return find_place(value("--hosts", hosts, parse_hosts), os.environ)


def serve_this_host(place: HostPlace, progress: str = "auto") -> int:
    """Measure what host 1 asks for; returns an exit code.

    Raises:
        PipetuneError: host 1 does not answer, or was stopped.
    """
    from pipetune.hosts.agent import serve

    say = teller(progress)
    try:
        done = serve(place, say)
    except KeyboardInterrupt as stop:
        echo("pipetune: interrupted", err=True)
        return exit_code_of(stop)
    say(f"{place.name_of(place.host)}: done, {done} measurement{'s' * (done != 1)}")
    return 0


def teller(progress: str) -> Callable[[str], None]:
    """What says a line on standard error, where nothing else is promised there."""
    return (lambda line: None) if progress in ("json", "none") else (lambda line: echo(line, err=True))


class Alone:
    """This host, which measures by itself."""

    measure: ClassVar[Measure] = staticmethod(harness.measure)

    def stopped(self, why: str | None) -> None:
        """There is nobody to be told."""


@contextlib.contextmanager
def all_hosts(place: HostPlace | None, progress: str = "auto") -> Iterator[Alone | Coordinator]:
    """What measures a candidate: this host alone, or all of them, which are waited for.

    Raises:
        PipetuneError: a host did not come.
        UsageError: one has other versions.
    """
    if place is None or place.hosts == 1:
        yield Alone()
        return
    from pipetune.hosts.coordinator import Coordinator
    from pipetune.hosts.start import about_this_host

    say = teller(progress)

    def on_wait(come: int, missing: int) -> None:
        say(f"{come} of {place.hosts} hosts have come, waiting for {place.name_of(missing)}")

    with Coordinator(place, about_this_host(), on_wait=on_wait) as hosts:
        yield hosts
