"""All tables of docs/performance.md in one run: `python -m benchmarks.whole --folder OUT [--before CHECKOUT]`.

    python -m benchmarks.whole --folder OUT --before ../mirlo-before --python iree=PATH --python tvm=PATH

Each table is one command, whose output becomes a file in the folder. A table whose file is there is not measured again,
so that a run that was stopped goes on. With `--before`, tables are also measured in another checkout with an
environment of its own (`.venv`), each after that of this checkout, without other engines. `--python NAME=PATH` names
the Python of an engine, or that of all tables of a group (`llm`, `torch`), whose packages do not get along with the
others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONVOLUTIONAL = ("mlp", "lenet", "mobilenetv2", "resnet50")
TRANSFORMERS = ("bert_base", "gpt2", "vit_base")
LANGUAGE_MODELS = ("qwen3", "gemma", "head8", "asymmetric", "qdq", "bf16", "experts")


@dataclass(frozen=True)
class Table:
    """One command, and what is said besides for other engines."""

    name: str
    section: str
    """The heading on the page."""
    words: tuple[str, ...]
    """The module and its arguments; `{json}` is a file in the folder."""
    against: tuple[str, ...] = ()
    """Engines that `--against` names, in this checkout."""
    controls: tuple[str, ...] = ()
    """Engines that `--against` names in the other checkout as well, which show what the machine did in between."""
    group: str | None = None
    """Whose Python measures it, where `--python` names one: that of some tables, or of an engine."""
    before: bool = True
    """Whether it is measured in the other checkout."""
    has_limits: bool = False
    """Whether the exit code is 1 where a ratio is beyond the limit of the benchmark."""


TABLES = (
    Table("models", "Models", ("benchmarks", "--threads", "1,2", "--report", "{json}"),
          ("onnxruntime", "openvino"), ("onnxruntime",)),
    Table("contraction", "Single kernels", ("benchmarks.kernels.contraction",)),
    Table("memory-bound", "Single kernels", ("benchmarks.kernels.memory_bound",)),
    Table("calls", "Calls", ("benchmarks.calls",)),
    Table("sweep", "Random shapes", ("benchmarks.kernels.sweep", "--json", "{json}"), has_limits=True),
    Table("trees", "Decision trees", ("benchmarks.trees",)),
    Table("trees-same", "Decision trees", ("benchmarks.trees", "--same"), before=False),
    Table("postprocessing", "Postprocessing", ("benchmarks.postprocessing",)),
    Table("scale", "Compiling", ("benchmarks.compile_scale",)),
    Table("compile", "Compile times", ("benchmarks.compile", "--rounds", "2", "--json", "{json}"), ("iree", "tvm"),
          has_limits=True),
    Table("peers", "Other models, other compilers",
          ("benchmarks", *CONVOLUTIONAL, "--kernels", "0", "--report", "{json}"),
          ("onnxruntime", "openvino", "iree", "tvm"), before=False),
    Table("peers-transformers", "Other models, other compilers",
          ("benchmarks", *TRANSFORMERS, "--kernels", "0", "--report", "{json}"),
          ("onnxruntime", "openvino", "iree"), before=False),
    Table("spaced", "Calls after a pause",
          ("benchmarks", "mobilenetv2", "mlp", "lenet", "--threads", "1,2", "--gap", "0,50", "--kernels", "0",
           "--report", "{json}"),
          ("onnxruntime",), before=False),
    Table("spinner", "Calls after a pause",
          ("benchmarks", "mobilenetv2", "--threads", "1,2", "--gap", "0,50", "--spinner", "--kernels", "0"),
          ("onnxruntime",), before=False),
    Table("avx2", "AVX2", ("benchmarks", "--isa", "avx2", "--cpu-time", "--kernels", "0", "--report", "{json}"),
          ("onnxruntime", "openvino"), group="openvino", before=False),
    Table("libraries", "Libraries", ("benchmarks.libraries",), before=False),
    Table("llm", "Language models", ("benchmarks.llm",), group="llm", before=False),
    Table("llm-threads", "Language models", ("benchmarks.llm", "--steps", "--threads", "2", "--peers"),
          group="llm", before=False),
    Table("llm-windows", "Language models", ("benchmarks.llm", "--windows"), group="llm", before=False),
    *(Table(f"llm-{name}", "Language models", ("benchmarks.llm", "--model", name, "--steps", "--longest", "300"),
            group="llm", before=False) for name in LANGUAGE_MODELS),
    Table("c", "Models as C source", ("benchmarks.c_models",), before=False),
    Table("scikit-learn", "Estimators of scikit-learn", ("benchmarks.sklearn_models",), group="torch", before=False),
    Table("torch", "Models of PyTorch", ("benchmarks.torch_models",), group="torch", before=False),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A table in one of the checkouts."""

    table: Table
    command: tuple[str, ...]
    checkout: Path
    output: Path


def runs(tables: Sequence[Table], folder: Path, before: Path | None, pythons: Mapping[str, str]) -> Iterator[Run]:
    """Yield what is to be measured, a table in both checkouts before the next one."""
    for table in tables:
        own = pythons.get(table.group or "", sys.executable)
        engines = _against(table.against, {} if table.group in table.against else pythons)
        if table.name == "libraries" and "iree" in pythons:
            engines = ("--iree", pythons["iree"])
        yield Run(
            table, _command(own, table, folder / f"{table.name}.json", engines), ROOT, folder / f"{table.name}.txt"
        )
        if before is not None and table.before:
            name = f"{table.name}.before"
            python, controls = str(before / ".venv" / "bin" / "python"), _against(table.controls, pythons)
            yield Run(table, _command(python, table, folder / f"{name}.json", controls), before, folder / f"{name}.txt")


def _command(python: str, table: Table, report: Path, engines: Sequence[str]) -> tuple[str, ...]:
    return python, "-m", *(word.format(json=report) for word in table.words), *engines


def _against(engines: Sequence[str], pythons: Mapping[str, str]) -> tuple[str, ...]:
    if not engines:
        return ()
    named = (word for engine in engines if engine in pythons for word in ("--python", f"{engine}={pythons[engine]}"))
    return "--against", ",".join(engines), *named


def measure(run: Run) -> bool:
    """Run the command; keep its output under the final name only if it succeeds."""
    started, part = time.monotonic(), run.output.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        code = subprocess.run(
            run.command, cwd=run.checkout, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    is_done = code == 0 or (run.table.has_limits and code == 1)
    if is_done:
        part.rename(run.output)
    told = "" if is_done else f"  exit code {code}, see {part}"
    print(f"{run.output.stem:28}{time.monotonic() - started:8.0f} s{told}", flush=True)
    return is_done


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"some of {', '.join(t.name for t in TABLES)}")
    parser.add_argument("--folder", type=Path, required=True, help="where outputs are kept")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another checkout, measured in turns")
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="the Python of an engine or group"
    )
    arguments = parser.parse_args(argv)
    unknown = set(arguments.tables) - {table.name for table in TABLES}
    if unknown:
        parser.error(f"no table is named '{min(unknown)}'")
    pythons = dict(text.split("=", 1) for text in arguments.python)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    before = arguments.before.resolve() if arguments.before is not None else None
    chosen = [table for table in TABLES if not arguments.tables or table.name in arguments.tables]
    failed = [run for run in runs(chosen, folder, before, pythons) if not run.output.exists() and not measure(run)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
