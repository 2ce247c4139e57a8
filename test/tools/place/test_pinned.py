"""The pinned versions of CI: the same bytes in every process, and errors for invalid files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT

from mirlo.passes.files import FileError
from mirlo.tools.place.as_json import VERSION
from mirlo.tools.place.expect import differences, read_expected, shown

FOLDER = Path(__file__).parent


def _report(path: Path, seed: int) -> bytes:
    command = [
        sys.executable, "-m", "mirlo.tools.cli", "partition", FOLDER / "model.mlir", "--targets", "unit,far,llvm",
        "--plugin", FOLDER / "Inputs" / "units.py", "--report", path,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, env={**ENVIRONMENT, "PYTHONHASHSEED": str(seed)})
    return path.read_bytes()


@pytest.mark.sample(0)
def test_bytes_are_the_same(tmp_path: Path) -> None:
    first, second = (_report(tmp_path / f"{seed}.json", seed) for seed in (1, 2))
    assert first == second
    assert os.fsencode(tmp_path) not in first and os.fsencode(FOLDER) not in first


def test_bad_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read '.*none\.json': No such file"):
        read_expected(tmp_path / "none.json")
    for text in ("", "[]", '{"version": 1}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FileError, match=r"bad\.json' is not a report of 'mirlo partition'"):
            read_expected(tmp_path / "bad.json")
    (tmp_path / "old.json").write_text('{"version": 0, "targets": [], "totals": {}, "nodes": []}')
    with pytest.raises(FileError, match="is of version 0; this Mirlo writes 1: write it again"):
        read_expected(tmp_path / "old.json")


def _node(name: str, target: str, **more: object) -> dict[str, object]:
    pattern = "" if target == "llvm" else "p"
    return {"name": name, "operator": "relax.exp", "target": target, "pattern": pattern, "why_not": {}, **more}


def test_differences_are_about_nodes_first() -> None:
    base = {
        "targets": ["t", "llvm"],
        "totals": {"operators": 2},
        "regions": [],
        "nodes": [_node("a", "t"), _node("b", "t")],
    }
    assert differences(base, base) == []
    new = {**base, "nodes": [_node("new", "llvm"), _node("a", "t"), _node("b", "llvm", why_not={"t": "too wide"})]}
    assert differences(base, new) == [
        'relax.exp "new": is new, on llvm',
        'relax.exp "b": expected t.p, found llvm (too wide)',
    ]
    assert differences(base, {**base, "nodes": [_node("b", "t")]}) == ['relax.exp "a": is gone, it was on t.p']
    # The same places for other reasons: told by where they stand in the file.
    other = {**base, "nodes": [_node("a", "t", why_not={"u": "no"}), _node("b", "t")]}
    assert differences(base, other) == ['nodes[0].why_not.u: expected nothing, found "no"']


def test_many_differences_are_counted() -> None:
    assert shown([f"line {i}" for i in range(35)]).splitlines()[-2:] == ["  line 29", "  and 5 more"]


@pytest.mark.parametrize(
    "changes, part",
    [
        ({"targets": [1]}, "'targets' is no list of texts"),
        ({"totals": []}, "'totals' is no object"),
        ({"regions": 1}, "'regions' is no list of objects"),
        ({"nodes": [3]}, "'nodes' is no list of objects"),
        ({"nodes": [{"name": "a", "operator": "relax.exp", "target": ["t"]}]}, "'target' of node 0 is no text"),
    ],
)
def test_a_damaged_report_is_an_error(tmp_path: Path, changes: dict[str, object], part: str) -> None:
    report = {"version": VERSION, "targets": [], "totals": {}, "regions": [], "nodes": [], **changes}
    (tmp_path / "bad.json").write_text(json.dumps(report))
    with pytest.raises(FileError, match=f"bad.json' is damaged: {part}; write it again"):
        read_expected(tmp_path / "bad.json")
