"""A folder under construction: compiled models, arrays, and the list of units to run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.runtime.errors import MirloError

from ..unit import Check, Kit, KitError, Unit

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("dialects", "passes", "runtime", "targets", "tools")
"""What of Mirlo goes along: only what runs models is imported, from wherever it is."""
MAIN = '''"""Runs what this folder was built for: python FOLDER [--minutes 8] [--only WORD...] [--sanitizer TOOL]."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = [str(HERE / "lib"), *(str(wheel) for wheel in sorted(HERE.glob("wheels/*/")))]
sys.path[:0] = LIBRARY
os.environ["PYTHONPATH"] = os.pathsep.join([*LIBRARY, *filter(None, [os.environ.get("PYTHONPATH")])])
if __name__ == "__main__":
    from benchmarks.gpu.__main__ import main

    sys.exit(main(["--run", str(HERE), *sys.argv[1:]]))
'''

Tell = Callable[[str], None]


class Folder:
    """What units are added to."""

    def __init__(self, path: Path, target: str, tell: Tell) -> None:
        self.path, self.target, self.tell = path, target, tell
        self.units: list[Unit] = []
        self.left_out: list[tuple[str, str]] = []
        """What does not compile, and why."""
        path.mkdir(parents=True, exist_ok=True)
        for name in ("models", "data", "lib", "wheels"):
            shutil.rmtree(path / name, ignore_errors=True)
            (path / name).mkdir()
        for name in ("results.json", "results.md"):
            (path / name).unlink(missing_ok=True)

    def compile(self, text: str, options: str = "", library: str = "") -> Any:
        """Compile a module of text for the folder's target; a library is named before it."""
        import mirlo
        from mirlo.dialects.bindings import ir
        from mirlo.dialects.context import make_context

        with make_context():
            targets = [*filter(None, [library]), with_options(self.target, options)]
            result = mirlo.compile(ir.Module.parse(text), target=targets, cache=False)
        if library and not result.artifact.externals:
            raise KitError(f"{library} takes nothing of the module:\n{text}")
        return result

    def add(self, executable: Any, name: str, group: str, **facts: Any) -> None:
        """Add a unit of a compiled model; `arrays` are stored with it."""
        number = len(self.units)
        model = f"models/{number:03}.mirlo"
        if facts.get("weights") is None:
            executable.save(self.path / model)
        arrays: Mapping[str, np.ndarray] = facts.pop("arrays", {})
        data = ""
        if arrays:
            data = f"data/{number:03}.npz"
            np.savez_compressed(self.path / data, **{key: _plain(array) for key, array in arrays.items()})
        weights = facts.pop("weights", None)
        if weights is not None:
            weights = weights(self.path / model)
        self.units.append(Unit(name, group, model, data=data, weights=weights, **facts))
        self.tell(f"{group}/{name}")

    def try_add(self, name: str, group: str, make: Callable[[], Any], **facts: Any) -> None:
        """Add a unit, or note why it does not compile and leave it out."""
        try:
            self.add(make(), name, group, **facts)
        except MirloError as problem:
            self.left_out.append((f"{group}/{name}", str(problem).splitlines()[0]))

    def add_copy(self, size: int = 1 << 30) -> None:
        """Add the unit that measures the copy bandwidth of an NVIDIA GPU."""
        if not self.target.startswith("nvvm"):
            return
        self.units.append(Unit("copies", "copy", "", (), (), moved=float(size), is_small=False))

    def finish(self) -> Kit:
        """Write the list of units, and copy the run time next to them."""
        kit = Kit(self.target, time.strftime("%Y-%m-%d"), tuple(self.units))
        kit.write(self.path)
        copy_library(self.path / "lib")
        (self.path / "__main__.py").write_text(MAIN, encoding="utf-8")
        return kit

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array as numpy stores it without other packages: narrow floats as bytes of their size."""
    return array if array.dtype.kind in "biufV" and array.dtype.isbuiltin == 1 else array.view(f"V{array.itemsize}")


def with_options(target: str, options: str) -> str:
    """Return a target with more options in its braces."""
    if not options:
        return target
    name, _, braces = target.partition("{")
    return f"{name}{{{' '.join(filter(None, (braces.rstrip('}'), options)))}}}"


def copy_library(target: Path) -> None:
    """Copy Mirlo's sources as the package `mirlo`, and the modules that run units."""

    def ignored(_: str, names: Sequence[str]) -> list[str]:
        return [n for n in names if n == "__pycache__" or (Path(n).suffix and Path(n).suffix not in (".py", ".ll"))]

    for name in SOURCES:
        shutil.copytree(ROOT / name, target / "mirlo" / name, ignore=ignored)
    shutil.copy(ROOT / "__init__.py", target / "mirlo")
    _say_installed(target / "mirlo-0.dist-info")
    (target / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "__init__.py", target / "benchmarks")
    shutil.copytree(
        ROOT / "benchmarks" / "gpu", target / "benchmarks" / "gpu", ignore=lambda f, n: [*ignored(f, n), "build"]
    )


def _say_installed(folder: Path) -> None:
    """Write the metadata of an installed package, in which models find their loaders."""
    points = entry_points(group="mirlo.loaders")
    rows = "".join(f"{point.name} = {point.value}\n" for point in points)
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mirlo\nVersion: 0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(f"[mirlo.loaders]\n{rows}", encoding="utf-8")


def stored(name: str, outputs: Sequence[int], keys: Sequence[str], bound: float, how: str, **facts: Any) -> Check:
    """Return a check against arrays that the unit carries along."""
    return Check(name, tuple(outputs), "stored", bound, {"how": how, "keys": list(keys), **facts})
