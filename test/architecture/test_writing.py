"""All files are written in `runtime/files.py`: whole or not at all, and no device, pipe or link is replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from commands import ROOT

SHIPPED = ("dialects", "frontends", "passes", "targets", "runtime", "driver", "tools")
MODULE = "runtime/files.py"
METHODS = {"write_text", "write_bytes", "savez", "savefig", "NamedTemporaryFile", "mkstemp", "symlink_to"}
FUNCTIONS = {
    "os.replace", "os.rename", "os.link", "os.symlink", "np.save", "numpy.save", "onnx.save", "onnx.save_model",
    "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move",
}  # fmt: skip
"""What writes a file by its path."""
MAY_WRITE = re.compile(r"""["'][wax][bt+]*["']|O_CREAT|\b(""" + "|".join(map(re.escape, METHODS | FUNCTIONS)) + ")")
EXCEPT = {
    "runtime/cache.py": "entries of a folder that no other user can write to, whose names have a digest of the content",
    "runtime/processes.py": "pipes of its own",
    "targets/c/libraries.py": "a new file of its own, which is loaded and removed",
    "tools/bench/child.py": "a file of Linux about this process",
}


def test_files_are_written_in_one_place() -> None:
    found = {
        name: calls
        for folder in SHIPPED
        for path in (ROOT / folder).rglob("*.py")
        if (name := path.relative_to(ROOT).as_posix()) != MODULE
        and MAY_WRITE.search(source := path.read_text(encoding="utf-8"))
        and (calls := list(writes(source)))
    }
    assert found.keys() == EXCEPT.keys(), {name: found.get(name) for name in found.keys() ^ EXCEPT.keys()}


def writes(source: str) -> Iterator[str]:
    """Yield the calls of a module that write a file; `replacing` yields one that arrays and drawings are written to."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        attribute = called.rpartition(".")[2]
        first = ast.unparse(node.args[0]) if node.args else ""
        if attribute == "open":
            values = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            is_written = any(str(value).rstrip("bt+") in ("w", "a", "x") for value in values)
            if (is_written or "O_CREAT" in ast.unparse(node)) and first != "os.devnull":
                yield ast.unparse(node)
        elif (called in FUNCTIONS or ("." in called and attribute in METHODS)) and first != "file":
            yield ast.unparse(node)
