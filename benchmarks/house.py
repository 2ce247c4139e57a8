"""Figures of the code base: `python -m benchmarks.house [--against REVISION]`.

Counts lines by folder, lines with `Any`, import cycles, strictly typed files, imperative docstrings, class names that
are used twice, and long functions of the code that ships. `--against` adds a column for another revision from git, and
counts the files of features that the other revision lacks apart from those that both have (`benchmarks/features.py`).
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from mirlo.benchmarks.features import new_features
from mirlo.runtime.interpreter import FewerCollections

ROOT = Path(__file__).resolve().parents[1]
LINE_KINDS = ("lines of code", "signatures", "imports", "docstrings", "comments", "blank lines")
LONG = 40
"""Lines of a function that is counted as long."""
_NO_VERBS = """
    a above after all an and any are as at because before below beside between both by each every few for from half
    how if in inside into is it its just many more most no none not nothing of on one only or other others out over
    same several so some such that the their them then there these this those to two under what when where whether
    which while who whose why with without
"""
NO_VERBS = frozenset(_NO_VERBS.split())
"""First words of docstrings that are not imperative: articles, pronouns, conjunctions, prepositions, question words."""

DISPATCH: dict[str, str] = {
    "tools/cli/__init__.py": "the module of a command is found by the word of the command line",
    "tools/fuzz/modes.py": "likewise; two modes run commands with hostile input",
    "frontends/onnx/registry.py": "converters register themselves, and are found by the operator of a file",
}
"""Files whose names of modules are no dependencies, and why: what they import is chosen by input."""

NAMING = (ast.Import, ast.ImportFrom, ast.Constant, ast.Call)
"""Nodes that may name a module."""


class House:
    """The files of a checkout, parsed when that is needed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        folders = sorted(p.parent for p in root.glob("*/__init__.py") if p.parent.name not in ("test", "benchmarks"))
        self.paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
        self.texts = {path: path.read_text(encoding="utf-8") for path in self.paths}
        self._parsed: dict[Path, ast.Module] = {}

    def tree(self, path: Path) -> ast.Module:
        """Return one parsed file."""
        if path not in self._parsed:
            self._parsed[path] = ast.parse(self.texts[path])
        return self._parsed[path]

    @cached_property
    @FewerCollections()
    def trees(self) -> dict[Path, ast.Module]:
        """Return all parsed files."""
        return {path: self.tree(path) for path in self.paths}

    def figures(self, other: House | None = None) -> dict[str, int | str]:
        """Return all figures by name; lines of features that the other checkout lacks are counted apart."""
        result: dict[str, int | str] = {}
        lines = Counter[str]()
        for path, text in self.texts.items():
            lines[path.relative_to(self.root).parts[0]] += len(text.splitlines())
        result.update({f"lines of {folder}": count for folder, count in sorted(lines.items())})
        result["lines"] = sum(lines.values())
        if other is not None:
            apart = {self.root / name for names in new_features(self.names, other.names).values() for name in names}
            shared = [path for path in self.paths if path not in apart]
            result["lines of features of both"] = sum(len(self.texts[path].splitlines()) for path in shared)
            result["lines of features of one"] = result["lines"] - result["lines of features of both"]
            kinds = sum((line_kinds(self.texts[path], self.trees[path]) for path in shared), Counter[str]())
            result.update({f"{kind} of features of both": kinds[kind] for kind in LINE_KINDS})
            result["statements of features of both"] = sum(_statements(self.trees[path]) for path in shared)
            result["errors raised by features of both"] = sum(
                isinstance(node, ast.Raise) for path in shared for node in ast.walk(self.trees[path])
            )
        result["files"] = len(self.paths)
        result["lines with Any"] = sum(
            bool(re.search(r"\bAny\b", line)) for t in self.texts.values() for line in t.splitlines()
        )
        cycles = import_cycles(self.imports)
        result["import cycles"] = len(cycles)
        result["files in import cycles"] = sum(map(len, cycles))
        result["strictly typed files"] = sum(self._is_strict(path) for path in self.paths)
        docstrings = [text for node in self._functions if (text := ast.get_docstring(node))]
        imperative = sum(is_imperative(text) for text in docstrings)
        result["imperative docstrings of functions"] = f"{imperative} of {len(docstrings)}"
        result["class names used twice"] = len(self.repeated_class_names)
        result[f"functions over {LONG} lines"] = sum((n.end_lineno or 0) - n.lineno > LONG for n in self._functions)
        return result

    @cached_property
    def names(self) -> list[str]:
        """Return the paths of the files from the root."""
        return [path.relative_to(self.root).as_posix() for path in self.paths]

    @cached_property
    @FewerCollections()
    def imports(self) -> dict[str, set[str]]:
        """Return the modules that each module imports: in functions, for type checking and by their names too."""
        modules = {self._module(path): path for path in self.paths}
        result: dict[str, set[str]] = {}
        for module, path in modules.items():
            nodes = [node for node in ast.walk(self.trees[path]) if isinstance(node, NAMING)]
            names = {name for node in nodes for name in _imported(node)}
            if path.relative_to(self.root).as_posix() not in DISPATCH:
                names |= {name for node in nodes for name in _imported_by_name(node, modules)}
            near = {name if name in modules else name.rpartition(".")[0] for name in names}
            result[module] = {name for name in near if name in modules and name != module}
        return result

    @cached_property
    def repeated_class_names(self) -> dict[str, list[str]]:
        """Return the names of several public classes, with the files of these."""
        files: dict[str, list[Path]] = {}
        for path, text in self.texts.items():
            for match in re.finditer(r"^[ \t]*class ([A-Za-z]\w*)", text, re.MULTILINE):
                files.setdefault(match[1], []).append(path)
        repeated: dict[str, list[str]] = {}
        for name, paths in files.items():  # a text may look like a class: few files are parsed to see that
            if len(paths) > 1:
                for path in dict.fromkeys(paths):
                    nodes = [node for node in ast.walk(self.tree(path)) if isinstance(node, ast.ClassDef)]
                    place = path.relative_to(self.root).as_posix()
                    repeated.setdefault(name, []).extend(place for node in nodes if node.name == name)
        return {name: places for name, places in repeated.items() if len(places) > 1}

    @cached_property
    def _functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        nodes = (node for tree in self.trees.values() for node in ast.walk(tree))
        return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def _strict(self) -> list[re.Pattern[str]]:
        """Return patterns of the modules that the type checker's settings list as strict."""
        text = (self.root / "pyproject.toml").read_text(encoding="utf-8")
        sections = re.findall(r"\[\[tool\.mypy\.overrides\]\]\n(.*?)(?=\n\[|\Z)", text, re.DOTALL)
        names = [
            n
            for s in sections
            if "disallow_any_explicit = true" in s or "# strict" in s
            for n in re.findall(r'"(mirlo[\w.*]*)"', s)
        ]
        return [re.compile(re.escape(name).replace(r"\.\*", r"(\..*)?") + r"\Z") for name in names]

    def _is_strict(self, path: Path) -> bool:
        return any(pattern.match(self._module(path)) for pattern in self._strict)

    def _module(self, path: Path) -> str:
        parts = ("mirlo", *path.relative_to(self.root).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_imperative(docstring: str) -> bool:
    """Return whether a docstring seems to begin with a verb in the imperative mood."""
    first = re.match(r"[\w']+", docstring.strip())
    if first is None:
        return False
    word = first.group().lower()
    return word not in NO_VERBS and not (word.endswith("s") and not word.endswith(("ss", "us")))


def import_cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other: strongly connected components with several members."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []
    for start in imports:
        work: list[tuple[str, Iterator[str]]] = [] if start in index else [(start, iter(sorted(imports[start])))]
        while work:
            module, rest = work[-1]
            if module not in index:
                index[module] = low[module] = len(index)
                stack.append(module)
            for other in rest:
                if other not in index:
                    work.append((other, iter(sorted(imports[other]))))
                    break
                if other in stack:
                    low[module] = min(low[module], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == index[module]:
                    at = stack.index(module)
                    members, stack[at:] = stack[at:], []
                    cycles += [sorted(members)] if len(members) > 1 else []
    return cycles


def line_kinds(text: str, tree: ast.AST) -> Counter[str]:
    """Return how many lines of a file are of each of `LINE_KINDS`."""
    code, signature, imported, docstring, comment, blank = LINE_KINDS
    lines = [line.strip() for line in text.splitlines()]
    kinds = [blank if not line else comment if line.startswith("#") else code for line in lines]

    def mark(kind: str, first: int, end: int) -> None:
        kinds[first - 1 : end] = [kind if old == code or kind == docstring else old for old in kinds[first - 1 : end]]

    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            mark(docstring, node.lineno, node.end_lineno or node.lineno)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            mark(imported, node.lineno, node.end_lineno or node.lineno)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            mark(signature, node.lineno, node.body[0].lineno - 1)
    return Counter(kinds)


def _statements(tree: ast.AST) -> int:
    """Return the number of statements without imports and docstrings, which types and line breaks do not change."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(tree)
    )


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imported_by_name(node: ast.AST, modules: Collection[str]) -> Iterator[str]:
    """Yield the modules that a text names, as in `import_module`, a lazy table, or `import_modules` of a package."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.partition(":")[0]
        yield from [name] if name in modules else ()
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function == "import_modules":
            yield from (name for name in modules if name.rpartition(".")[0] == node.args[0].value)


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """Extract a revision to a temporary folder."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def main(arguments: Sequence[str]) -> int:
    """Print the figures as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION", help="a revision whose figures are printed as well")
    flags = parser.parse_args(arguments)
    now = House(ROOT)
    if flags.against:
        with _checkout(flags.against) as folder:
            before = House(folder)
            columns = {flags.against: before.figures(now), "now": now.figures(before)}
    else:
        columns = {"now": now.figures()}
    print(f"| figure | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}")
    for name in dict.fromkeys(name for figures in columns.values() for name in figures):
        print(f"| {name} | {' | '.join(str(figures.get(name, '')) for figures in columns.values())} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
