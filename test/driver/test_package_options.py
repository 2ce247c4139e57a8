"""Options of `mirlo.compile` added by packages, with a package written for the test."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mirlo
from mirlo.driver import compile_strategy, package_options
from mirlo.driver.compile_option import CompileOptionError, compile_option
from mirlo.driver.options import CoreArguments
from mirlo.runtime.entry_points import EntryPoint
from mirlo.runtime.known_packages import PACKAGES
from mirlo.runtime.options import UnknownOption, integer

ENTRIES = """[mirlo.compile_options]
copies = unit_copies.options:CopyOptions
[mirlo.strategies]
copies = unit_copies.strategy:CopyStrategy
[mirlo.passes]
note-copies = unit_copies.strategy
[mirlo.model_files]
copies = unit_copies.strategy:first_file
"""
OPTIONS = """
from dataclasses import dataclass
from mirlo.extend.options import OptionFlag, compile_option, integer

@dataclass(frozen=True, kw_only=True)
class CopyOptions:
    copies: int = compile_option(
        1, "The number of copies.", OptionFlag("--copies", "N"), own_pass="note-copies", kind=integer(1, 9)
    )
"""
STRATEGY = """
from dataclasses import dataclass, replace
from pathlib import Path

from mirlo.extend.compilation import CompileStrategy
from mirlo.extend.passes import Pass, ReportSection, option, register_pass
from unit_copies.options import CopyOptions

class CopyNote(ReportSection):
    key = "copies"

    def __init__(self, count):
        self.count = count

    def lines(self):
        yield f"made for {self.count} copies"

    def to_json(self):
        return self.count

@register_pass
@dataclass(frozen=True)
class NoteCopies(Pass):
    "Note how many copies there are."

    name = "note-copies"
    count: int = option(1, "how many")

    def run(self, op, session):
        session.notes.append(CopyNote(self.count))

@dataclass
class Copies:
    models: list

class CopyStrategy(CompileStrategy[CopyOptions]):
    options_type = CopyOptions

    def target(self, target):
        return f"{target}{{cpu=x86-64}}"

    def compile(self, request, compile_request):
        return Copies([compile_request(replace(request, threads=1)) for _ in range(self.options.copies)])

    def first_passes(self):
        return f"note-copies{{count={self.options.copies}}}"

    def metadata(self):
        return {"copies": self.options.copies}

    def save(self, compiled, path):
        files = [path.with_suffix(f".{i}.mirlo") for i, _ in enumerate(compiled.models)]
        for model, file in zip(compiled.models, files):
            model.save(file)
        return list(zip(files, compiled.models))

def first_file(path):
    file = Path(path).with_suffix(".0.mirlo")
    return file if file.exists() else None
"""
MODEL = """func.func @main(%x: tensor<4xf32> {relax.name = "x"}) -> tensor<4xf32> {
  %y = "relax.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed package, and a model."""
    folder = tmp_path_factory.mktemp("installed")
    package, metadata = folder / "unit_copies", folder / "unit_copies-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: unit-copies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRIES)
    (package / "__init__.py").write_text("")
    (package / "options.py").write_text(OPTIONS)
    (package / "strategy.py").write_text(STRATEGY)
    (folder / "model.mlir").write_text(MODEL)
    return folder


def _python(folder: Path, *arguments: str, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_an_option_of_a_package_compiles_as_its_strategy_does(folder: Path) -> None:
    program = """
import sys
import mirlo
one = mirlo.compile("model.mlir", cache=False)
assert "copies" not in one.artifact.metadata and "unit_copies.strategy" not in sys.modules
both = mirlo.compile("model.mlir", cache=False, copies=2)
assert [model.artifact.metadata["copies"] for model in both.models] == [2, 2]
assert both.models[0].artifact.metadata["regions"][0]["target"] == "llvm{cpu=x86-64}"
from mirlo.driver.request import CompileRequest
keys = [CompileRequest(model="m", copies=count).key_options()["copies"] for count in (1, 2)]
assert keys == [1, 2]
for options, message in (
    ({"copies": 10}, "copies: expected 1 to 9, found 10"),
    ({"copies": 2, "specialize": [{"n": 1}]}, "copies: a model that is compiled so has one build"),
    ({"copies": 2, "pipeline": "cse"}, "copies: a pipeline of your own says so itself, with the pass note-copies"),
):
    try:
        mirlo.compile("model.mlir", **options)
    except mirlo.MirloError as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)
"""
    _python(folder, "-c", program)


def test_commands_have_the_flag_of_a_package(folder: Path) -> None:
    command = ("-m", "mirlo.tools.cli")
    report = json.loads(_python(folder, *command, "explain", "model.mlir", "--copies", "3", "--json"))
    assert report["copies"] == [3]
    assert "made for 3 copies" in _python(folder, *command, "explain", "model.mlir", "--copies", "3")
    shown = _python(folder, *command, "compile", "model.mlir", "--copies", "2", "--no-cache", "-o", "out.mirlo")
    assert [line.partition(":")[0] for line in shown.splitlines()] == ["out.0.mirlo", "out.1.mirlo"]
    program = "import mirlo; print(mirlo.load('out.mirlo')([0, 0, 0, 0]).tolist())"
    assert _python(folder, "-c", program.replace("[0,", "__import__('numpy').float32([0,").replace("])", "]))"))
    assert "no such file" in _python(folder, "-c", "import mirlo; mirlo.load('none.mirlo')", code=1).lower()


def test_an_option_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES["compile_options"], "copies", "mirlo-copies")
    with pytest.raises(UnknownOption, match="copies is an option of a package that is not installed: pip install mir"):
        mirlo.compile("model.onnx", copies=2)
    from mirlo.tools.cli.arguments import make_parser

    with pytest.raises(SystemExit):
        make_parser(["run", "model.onnx", "--copies", "2"]).parse_args(["run", "model.onnx", "--copies", "2"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneOption:
    """An option of a package."""

    one: int = compile_option(1, "A number.", kind=integer(1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SameOption:
    """An option of another package."""

    one: int = compile_option(1, "A number.", kind=integer(1))


@dataclasses.dataclass(frozen=True)
class Positional:
    """An option that is no keyword."""

    one: int = compile_option(1, "A number.", kind=integer(1))


def test_what_entry_points_name_is_checked() -> None:
    here = __name__
    sys.modules.setdefault(here, sys.modules[OneOption.__module__])
    for value in (f"{here}:Positional", f"{here}:MODEL", f"{here}:NONE", "no_such_module:X", f"{here}:OneOption"):
        entry = EntryPoint("two" if value.endswith("OneOption") else "one", value, package_options.GROUP)
        with pytest.raises(CompileOptionError, match=f"'{entry.name}' of "):
            package_options.options_of_packages([entry])
    kinds = package_options.options_of_packages([EntryPoint("one", f"{here}:OneOption", package_options.GROUP)] * 2)
    assert kinds == (OneOption,) and package_options.joined_options(kinds)(one=3).one == 3
    with pytest.raises(CompileOptionError, match="one: two packages have an option of this name"):
        package_options.joined_options((OneOption, SameOption))
    with pytest.raises(CompileOptionError, match="expected a subclass of CompileStrategy"):
        compile_strategy._strategy(EntryPoint("one", f"{here}:OneOption", compile_strategy.GROUP), CoreArguments("m"))


class OneStrategy(compile_strategy.CompileStrategy[OneOption]):
    """The strategy of the option `one`."""

    options_type = OneOption


def test_strategies_are_those_of_options_that_differ_from_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.modules.setdefault(__name__, sys.modules[OneOption.__module__])
    entries = [EntryPoint(name, f"{__name__}:OneStrategy", compile_strategy.GROUP) for name in ("one", "of_another")]
    monkeypatch.setattr(compile_strategy, "offered", lambda group: entries)
    monkeypatch.setattr(compile_strategy, "PackageOptions", OneOption)
    assert compile_strategy.requested_strategies(OneOption()) == []
    (strategy,) = compile_strategy.requested_strategies(OneOption(one=5))
    assert strategy.option == "one" and strategy.options.one == 5
