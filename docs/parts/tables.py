"""Tables of what the package knows: causes, settings, decoders, devices, metrics, fields of its JSON."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.parts.markdown import code, folded, sentence, table
from pipetune.accelerator.named import DEFAULT_EMULATED, NAMED
from pipetune.candidates.settings import SETTINGS
from pipetune.candidates.varied import word
from pipetune.diagnosis.causes import CAUSES, GENERAL, Cause, Threshold
from pipetune.registry import BACKENDS, EXACT_PSNR_DB, LOADERS, Backend
from pipetune.report.progress_json import LINES
from pipetune.search.costs import CRITERIA

_PACKAGE = Path(__file__).resolve().parents[2] / "pipetune"
_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")
#: Python's own way to write a share has no space before the sign.
_PERCENT = re.compile(r"(?<=\d)%")
_END_OF_SENTENCE = re.compile(r"(?<=\.)\s")


def causes() -> str:
    """A section per cause: what happens, what to do, how it is decided, with the source of every number."""
    return "\n\n".join(_cause(cause) for cause in CAUSES.values())


def _cause(cause: Cause) -> str:
    lines = [f"### {cause.name}", f"**{cause.title[:1].upper()}{cause.title[1:]}.** {cause.explanation}"]
    if cause.advice:
        lines.append(f"*What to do:* {cause.advice}")
    lines.append(f"*Named by:* {', '.join(cause.named_by)}.")
    decided = [f"- {_threshold(threshold)}" for threshold in cause.thresholds]
    return "\n\n".join([*lines, *(["*Decided by:*", "\n".join(decided)] if decided else [])])


def thresholds() -> str:
    """The thresholds that belong to no single cause."""
    return "\n".join(f"- {sentence(_threshold(threshold))}" for threshold in GENERAL)


def _threshold(threshold: Threshold) -> str:
    return _PERCENT.sub(" %", f"{threshold.text} ({threshold.source})")


def settings() -> str:
    """The settings of a loader that a sweep can try."""
    rows = [
        [
            code(setting.name),
            sentence(setting.about),
            ", ".join(code(word(value)) for value in setting.values),
            ", ".join(setting.loaders),
            ("on a GPU" if setting.needs_cuda else "yes") if setting.by_default else "with `--vary`",
        ]
        for setting in SETTINGS.values()
    ]
    return table(["setting", "meaning", "values, the default first", "loaders", "tried"], rows)


def decoders() -> str:
    """Every decode backend: what it is, how near its pixels are to Pillow's, how it is installed."""
    rows = [
        [code(backend.name), _about(backend), _pixels(backend), _workers(backend), code(backend.install)]
        for backend in BACKENDS.values()
    ]
    return table(["decoder", "what it does", "pixels", "workers", "install"], rows)


def _pixels(backend: Backend) -> str:
    if backend.deviation is None:
        return "="
    mark = "" if backend.deviation.psnr_db >= EXACT_PSNR_DB else " *"
    return f"{backend.deviation.psnr_db:g} dB{mark}"


def _workers(backend: Backend) -> str:
    if backend.loader is not None:
        return f"its own {LOADERS[backend.loader].worker_kind}s"
    return "processes or threads" if backend.releases_gil else "processes"


def _about(backend: Backend) -> str:
    """The first sentence of the module's docstring, without the name that it begins with."""
    same = next((other.name for other in BACKENDS.values() if other.on_cpu == backend.name), None)
    if same is not None:
        return f"`{same}` with its decoder and all else on the CPU, beside a CUDA device."
    text = _docstring(backend.module or LOADERS[backend.loader or ""].module)
    first = _END_OF_SENTENCE.split(text.split("\n\n")[0])[0]
    first = _ROLE.sub(r"`\1`", first).replace("``", "`")
    return sentence(re.sub(rf"^{re.escape(backend.name)}: ", "", first, flags=re.IGNORECASE))


def _docstring(module: str) -> str:
    """Of a module that is not imported: it may need a library that is not installed."""
    path = _PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def accelerators() -> str:
    """The accelerators that can be emulated by name."""
    rows = [
        [
            code(f"emulated:{named.name}") + (" (default)" if named.name == DEFAULT_EMULATED else ""),
            f"{named.rate_samples_per_s:g}",
            f"{named.copy_bytes_per_s / 1e9:g} GB/s",
            named.source,
        ]
        for named in NAMED.values()
    ]
    return table(["device", "samples/s", "copy", "rate published in"], rows, "lrr")


def disks() -> str:
    """What a name of storage stands for."""
    from pipetune.answering.questions import DISKS, MODELS

    rows = ["| name | delivers | as stated of |", "|---|---|---|"]
    for name, disk in DISKS.items():
        reads = "" if disk.requests_per_s is None else f", {disk.requests_per_s:,.0f} reads a second"
        rows.append(f"| `{name}` | {(disk.bytes_per_s or 0) / 1e6:,.0f} MB/s{reads} | {MODELS[name]} |")
    return "\n".join(rows)


def progress() -> str:
    """The lines of ``pipetune sweep --progress json``."""
    rows = [
        [code(kind) if not number else "", code(name), about]
        for kind, fields in LINES.items()
        for number, (name, about) in enumerate(fields.items())
    ]
    return table(["`type`", "field", "what it is"], rows)


def criteria() -> str:
    """What ``--cheapest`` may name."""
    return table(["name", "what it counts"], [[code(name), found.about] for name, found in CRITERIA.items()])


def metrics() -> str:
    """The metrics that ``watch --prometheus`` serves, read from the calls that make them."""
    tree = ast.parse((_PACKAGE / "watching" / "prometheus.py").read_text())
    rows = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        match call:
            case ast.Call(
                func=ast.Name(id="_gauge" | "_counter" as kind),
                args=[ast.Constant(value=str(name)), ast.Constant(value=str(about)), *_],
            ):
                rows.append([code(name + ("_total" if kind == "_counter" else "")), kind[1:], sentence(about)])
    return table(["metric", "type", "meaning"], sorted(rows, key=lambda row: (row[1], row[0])))


def schema(name: str) -> str:
    """The fields of one of the objects that are written as JSON.

    Args:
        name: ``sweep`` or ``watch``.
    """
    found = json.loads((_PACKAGE / "report" / f"{name}.schema.json").read_text())
    parts = [sentence(found["description"])] if "description" in found else []
    if found.get("properties"):
        parts.append(_fields(found))
    for title, definition in found.get("$defs", {}).items():
        rows = _fields(definition)
        if rows:
            parts.append(folded(title, f"{definition.get('description', '')}\n\n{rows}"))
    return "\n\n".join(parts)


def _fields(definition: dict[str, Any]) -> str:
    required = set(definition.get("required", ()))
    rows = [
        [code(name), _type(value), value.get("description", "") + ("" if name in required else " *(may be missing)*")]
        for name, value in definition.get("properties", {}).items()
    ]
    return table(["field", "type", "meaning"], rows) if rows else ""


def _type(value: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(_types(value))) or "any"


def _types(value: dict[str, Any]) -> Iterator[str]:
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2]
    elif "const" in value:
        yield code(json.dumps(value["const"]))
    elif "enum" in value:
        yield from (code(json.dumps(choice)) for choice in value["enum"])
    for choice in (*value.get("oneOf", ()), *value.get("anyOf", ())):
        yield from _types(choice)
    kinds = value.get("type", ())
    if "enum" in value or "const" in value:
        return
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "array" and isinstance(value.get("items"), dict):
            yield f"list of {_type(value['items'])}"
        else:
            yield kind


def packages() -> str:
    """The folders of the package from the top layer to the bottom, with what each is for.

    Layers are those that import-linter checks; what a package is for is the first sentence of its ``__init__.py``.
    """
    project = tomllib.loads((_PACKAGE.parent / "pyproject.toml").read_text())
    contract = next(one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    rows = []
    for layer in contract["layers"]:
        for module in (name.strip() for name in layer.split(":")):
            path = _PACKAGE.parent.joinpath(*module.split("."))
            rows.append([code(f"{path.name}/" if path.is_dir() else f"{path.name}.py"), _purpose(path)])
        rows.append(["", ""])
    return table(["package", "what it is for"], rows[:-1])


def _purpose(path: Path) -> str:
    """First sentence of a module's or a package's docstring."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0]
    text = _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")
    return sentence(re.split(r"(?<=\.)\s", text)[0])
