"""Small programs of TOSA in `programs.txt`, and what its reference model computes of them, in `results.json`.

`python tests/programs.py` runs the reference model again, of the package `tosa-tools`, and writes
`results.json`.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
KINDS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i1": np.bool_, "f32": np.float32}


def read_programs() -> dict[str, str]:
    """Return the programs by name, which stands in a comment above each."""
    sections = re.split(r"^// (.*)\n", (FOLDER / "programs.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


PROGRAMS = read_programs()


def argument(name: str) -> np.ndarray:
    """Return the input of a program: numbers of all sizes."""
    kind = re.search(r"%x: tensor<([\dx]*)x(\w+)>", PROGRAMS[name])
    assert kind is not None
    dims, dtype = [int(dim) for dim in kind.group(1).split("x")], np.dtype(KINDS[kind.group(2)])
    random = np.random.default_rng(sum(map(ord, name)))
    if dtype.kind == "f":
        return (50 * random.standard_normal(dims)).astype(dtype)
    info = np.iinfo(dtype)
    most = min(info.max, 1 << 24)
    result: np.ndarray = random.integers(-most, most, dims).astype(dtype)
    return result


def reference(name: str) -> np.ndarray:
    """Return what the reference model computes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "p.mlir").write_text(PROGRAMS[name], encoding="utf-8")
        flags = ["--tosa-serialize", f"--tosa-flatbuffer-filename={folder / 'p.tosa'}"]
        subprocess.run(["tosa-opt", folder / "p.mlir", *flags], check=True, capture_output=True)
        np.save(folder / "x.npy", argument(name))
        names = ["--ifm_name=TosaInput_0", "--ifm_file=x.npy", "--ofm_name=TosaOutput_0", "--ofm_file=y.npy"]
        where = ["--tosa_file=p.tosa", f"--flatbuffer_dir={folder}", f"--output_dir={folder}"]
        subprocess.run(["tosa_reference_model", *where, *names], check=True, capture_output=True, cwd=folder)
        result: np.ndarray = np.load(folder / "y.npy")
        return result


if __name__ == "__main__":
    lines = [f"  {json.dumps(name)}: {json.dumps(reference(name).reshape(-1).tolist())}" for name in PROGRAMS]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
