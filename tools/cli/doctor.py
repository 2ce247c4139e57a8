"""`mirlo doctor`: the parts of this installation, the missing ones, and the commands that install them."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Iterator

from mirlo.passes.targets import TargetError, describe_inert_rules, find_target, target_names
from mirlo.runtime.cache import Cache, default_folder
from mirlo.runtime.host_cpu import AMX, host_cpu
from mirlo.runtime.private_folders import unsafe_folder
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import available_cores, permits_tiles
from mirlo.targets.llvm.machine import rates_file, store_rates, stored_rates
from mirlo.targets.llvm.measure import measure
from mirlo.targets.llvm.options import described_machine, host_identity, host_machine
from mirlo.targets.llvm.processor import host_processor
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import MissingParts
from mirlo.tools.tables import bytes_text, columns

PACKAGE = "mirlo"
BYTECODE = "PYTHONDONTWRITEBYTECODE"
_REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)[^;]*(?:;(.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
DEVELOPMENT = ("test", "docs", "package", "zoo", "clients", "serve-clients")
"""Extras for contributors, which are listed only if they are complete."""


@dataclass(frozen=True)
class Requirement:
    """A package that Mirlo requires, or that one of its extras installs."""

    name: str
    extra: str | None

    @property
    def version(self) -> str | None:
        """Return the installed version, or None."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None


def execute(arguments: Arguments) -> None:
    """Print a report; it is an error if something is missing without which nothing compiles."""
    problems: list[str] = []
    if getattr(arguments, "measure", False):
        _measure()
    for title, lines in (
        ("mirlo", _versions(problems)),
        ("machine", _machine(problems)),
        ("cache", _cache()),
        ("targets", _targets(problems)),
        ("extras", _extras()),
    ):
        listed = list(lines)
        arguments.result[title] = listed
        arguments.show(f"{title}:", *(f"  {line}" for line in listed))
    arguments.result["problems"] = problems
    if problems:
        raise MissingParts("; ".join(problems))
    arguments.show("everything that compiling and running models needs is there")


def _measure() -> None:
    """Measure this processor and store its rates."""
    store_rates(host_identity(), measure(host_processor(), described_machine()))
    host_machine.cache_clear()


def requirements() -> list[Requirement]:
    """Return the requirements that the package's metadata list."""
    result = []
    for text in importlib.metadata.requires(PACKAGE) or ():
        match = _REQUIREMENT.match(text)
        if match is None:
            continue
        extra = _EXTRA.search(match[2] or "")
        result.append(Requirement(match[1], extra[1] if extra else None))
    return result


def _versions(problems: list[str]) -> Iterator[str]:
    yield f"version {importlib.metadata.version(PACKAGE)}, Python {platform.python_version()}"
    needed = [each for each in requirements() if each.extra is None]
    missing = [each.name for each in needed if each.version is None]
    if missing:
        problems.append(f"{', '.join(missing)} missing: pip install --force-reinstall {PACKAGE}")
    yield from columns([(each.name, each.version or "missing") for each in needed])
    try:
        from mirlo.dialects import wheel
        from mirlo.dialects.bindings import PACKAGE as bindings

        tested = "tested" if wheel.is_tested() else f"not tested; tested are {', '.join(map(str, wheel.TESTED))}"
        yield f"MLIR bindings: module {bindings} of {wheel.installed() or 'no known package'}, {tested}"
    except ImportError as error:
        problems.append(str(error))
        yield f"MLIR bindings: do not load: {error}"


def _machine(problems: list[str]) -> Iterator[str]:
    cores = available_cores()
    yield f"{platform.system()} {platform.machine()}, {cores} cores for this process"
    try:
        cpu = host_cpu()
        known = (
            "avx2",
            "fma",
            "avx512f",
            "avx512vnni",
            "avxvnni",
            "avx512bf16",
            "avx512fp16",
            "amx-bf16",
            "amx-int8",
            "neon",
            "dotprod",
            "i8mm",
        )
        listed = ", ".join(name for name in known if name in cpu.features) or "none that matter here"
        yield f"CPU: {cpu.name}; {listed}"
        if cpu.features & AMX:
            yield f"AMX: the system {'permits' if permits_tiles() else 'does not permit'} its registers"
        yield from _rates()
    except (ImportError, RuntimeError) as error:
        problems.append(f"LLVM does not load: {error}")
        yield f"CPU: unknown, LLVM does not load: {error}"
    compiler = next((program for name in ("cc", "clang", "gcc") if (program := shutil.which(name))), None)
    yield f"C compiler: {compiler or 'none; target c, and --emit library, need one'}"
    if sys.dont_write_bytecode:
        yield "bytecode: not kept, so that each process compiles what it imports, for a second: unset " + BYTECODE


def _rates() -> Iterator[str]:
    """Yield the rates with which models are planned, beside those assumed for such a processor."""
    known, assumed = stored_rates(host_identity()).known, described_machine()
    if not known:
        yield "rates: not measured; mirlo doctor --measure does so, in three seconds"
        return
    yield f"rates that were measured, in {rates_file()}:"
    yield from columns(
        [(f"  {name}", f"{rate:g}", f"assumed: {getattr(assumed, name):g}") for name, rate in known.items()]
    )


def _cache() -> Iterator[str]:
    folder = default_folder()
    cache = Cache(folder)
    used = sum(entry.bytes for entry in cache.entries())
    yield f"{folder}: {bytes_text(used)} of at most {bytes_text(cache.max_bytes())}"
    problem = unsafe_folder(folder)
    if problem is not None:
        yield f"not used: {problem}"


def _targets(problems: list[str]) -> list[str]:
    whole, broken = [], []
    for name in target_names():
        try:
            find_target(name)
            whole.append(name)
        except TargetError as error:
            broken.append(f"{name}: {error}")
    if "llvm" not in whole:
        problems.append("target llvm does not load")
    return [", ".join(whole), *broken, *describe_inert_rules()]


def _extras() -> list[str]:
    by_extra: dict[str, list[Requirement]] = {}
    for each in requirements():
        if each.extra is not None:
            by_extra.setdefault(each.extra, []).append(each)
    rows = []
    for extra, needed in sorted(by_extra.items()):
        missing = [each.name for each in needed if each.version is None]
        if not missing:
            rows.append((extra, "complete", ""))
        elif extra not in DEVELOPMENT:
            rows.append((extra, f"pip install '{PACKAGE}[{extra}]'", f"adds {', '.join(missing)}"))
    return columns(rows)
