"""What is known of a training script of the user's and of the loader that it trains on. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipetune.records.written import WrittenFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderIdentity:
    """By which a ``DataLoader`` of a script is recognised in another start of it."""

    file: str
    """That calls the constructor; absolute."""
    function: str
    """Qualified name of the function that calls it; ``<module>`` at the top level of the file."""
    dataset: str
    """Class of its data set."""
    sampler: str
    """Class of its sampler."""
    ordinal: int
    """Number of loaders with the same file, function and classes that are made before it."""
    position: tuple[int, int]
    """Of the call: line within the function, and column."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What does not change when the file is edited elsewhere."""
        return self.file, self.function, self.dataset, self.sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCall:
    """One call on the way to a loader's constructor: the constructor's own, or that of a function which led to it."""

    file: str
    """Absolute."""
    span: tuple[int, int, int, int]
    """First line, last line, first column and last column of the call expression; lines from 1, columns from 0."""
    direct: bool = True
    """It calls the function of the call before it; ``False``: a library's functions lie between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOrigin:
    """The place in a source or configuration file where the value of a setting is written."""

    file: str
    """Absolute."""
    line: int
    """From 1."""
    name: str
    """Of the argument, key, parameter or variable that has the value there."""
    text: str
    """The expression as written."""
    also: tuple[int, ...] = ()
    """Lines of the same file with other calls that take the value from the same dictionary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOption:
    """The script's own option for a setting."""

    words: tuple[str, ...]
    """All its forms, the long one first: ``("--workers", "-j")``; of Hydra the key: ``("data.num_workers",)``."""
    program: str
    """The file that the command starts; absolute."""
    override: bool = False
    """Written as ``data.num_workers=8`` (Hydra), and not as ``--workers 8``."""
    comes_first: bool = False
    """The option stands before the program's other words: behind them it would be a subcommand's, or of the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLoader:
    """The loader that a script trains on, as the script has it."""

    identity: LoaderIdentity | None
    """``None``: it was made where no call of the script's can be seen; it is measured, and cannot be tuned later."""
    where: str | None
    """``FILE:LINE`` of the call that made it."""
    written: dict[str, str] = field(default_factory=dict)
    """Arguments as the call writes them: ``{"num_workers": "args.workers"}``."""
    calls: tuple[SourceCall, ...] = ()
    """The call that made it and, outwards, those that led there; libraries' calls are left out."""
    alone_there: bool = False
    """The call made no other loader."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Its settings under torch's names."""
    loader_class: str = ""
    dataset: str = ""
    batches: int | None = None
    """Of an epoch; ``None``: not known."""
    batch_size: int | None = None
    """Samples; ``None``: not known."""
    iterable: bool = False
    """Its data set is an ``IterableDataset``."""
    shards: int | None = None
    """That an iterable data set divides among all workers of all ranks; ``None``: not known, or it has none."""
    own_generators: tuple[str, ...] = ()
    """Attributes of the data set that are random generators: every worker has a copy that draws the same."""
    told_workers: tuple[str, ...] = ()
    """Attributes of an iterable data set that hold the number of workers, or how much each of them yields: with another
    number it would repeat samples, or leave some out."""
    renewed_with_epochs: tuple[str, ...] = ()
    """Attributes of the data set that the script sets anew for each epoch (``set_epoch``): workers that live on keep a
    copy of the data set as it was, and would not see that."""
    undivided: bool = False
    """An iterable data set that has not asked how many workers there are while the script's own loader read it: each
    worker yields every sample."""
    others_trained: int = 0
    """Other loaders that the script trains on, which are left as they are."""
    torch: str = ""
    ranks: int = 1
    device: str = "cpu"
    """``cuda`` or ``cpu``."""
    device_index: int | None = None
    device_name: str | None = None
    gpu_uuid: str | None = None
    cores: tuple[int, int] = (0, 0)
    """Cores that the process may use: when it trains, and when it started."""
    python: str = ""
    fixed: tuple[str, ...] = ()
    """Settings that its class does not take, under torch's names."""
    names: dict[str, str] = field(default_factory=dict)
    """Settings that its library has another name for: torch's name -> its own."""
    switchable: bool = True
    """It takes other settings while the script runs; ``False``: when it is made only."""
    has_cv2: bool = False
    """OpenCV is loaded, which has threads of its own in each worker."""
    pil: str | None = None
    """Version of ``PIL``; ``None``: the script has not loaded it."""

    def samples_between_starts(self, workers: int) -> int | None:
        """Samples that all ranks train on from one start of the workers to the next, which are those of an epoch.

        Args:
            workers: of each rank.

        Returns:
            ``None``: the workers start once, or how long an epoch is is not known.
        """
        if not workers or not self.switchable or self.settings.get("persistent_workers"):
            return None
        return self.epoch_samples

    @property
    def epoch_samples(self) -> int | None:
        """Samples that all ranks train on in one epoch; ``None``: not known."""
        return self.batches * self.batch_size * self.ranks if self.batches and self.batch_size else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSummary:
    """A script that was tuned, in the result of its sweep."""

    command: tuple[str, ...]
    """As it was started; ``{scratch}`` stands for a temporary folder, and ``***`` for what looks like a secret."""
    cwd: str
    loader: ScriptLoader | None
    """The loader that it trains on; ``None``: that was not found out."""
    setup_s: float | None = None
    """From its start to the first batch that was measured (s)."""
    starts: int = 0
    """How often it was started."""
    confirmed: bool = False
    """The recommendation was measured in a start of its own, beside the script as it is."""
    option: ScriptOption | None = None
    """The script's own option for the number of workers; ``None``: none can be told from its text."""
    origins: dict[str, SettingOrigin] = field(default_factory=dict)
    """Argument of the loader -> where its value is written, if not in the call itself."""
    epoch_starts_counted: bool = False
    """Rates contain the wait for workers that start anew with each epoch; ``False``: an earlier version measured
    steady rates alone."""
    written: WrittenFiles | None = None
    """Files that it made, changed or removed; ``None``: not looked at."""
    notes: tuple[str, ...] = ()
