"""Files of arrays for `--input`: hostile and damaged ones are errors that name input and file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.files import read_array

DEEP = 3000
HEADERS = {
    "an expression": "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1j+" * DEEP + "1,)}",
    "nested lists": "{'descr': " + "[" * DEEP + "]" * DEEP + ", 'fortran_order': False, 'shape': ()}",
    "nested tuples": "(" * 90 + ")" * 90,
    "signs": "-" * DEEP + "1",
    "a record of records": f"{{'descr': {'[(' * 200 + repr('a') + ','}, 'fortran_order': False, 'shape': ()}}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
    "negative dims": "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}",
    "huge dims": f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62}, 16)}}",
    "dims of another type": "{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}",
    "many dims": f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 100}}}",
    "bytes": "{b'descr': '<f4'}",
    "no type": "{'descr': 'nothing', 'fortran_order': False, 'shape': ()}",
    "a number": "9" * DEEP,
    "nothing": "",
}


def _file(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(_file(HEADERS[name]))
    with pytest.raises(CommandError, match=r"input 'x': '.*x\.npy' is not an array that numpy\.save wrote"):
        read_array(str(path), "x")


@pytest.mark.filterwarnings("ignore")
def test_damaged_files(tmp_path: Path) -> None:
    """Arrays or errors, whatever is in the file."""
    rng = np.random.default_rng(0)
    path = tmp_path / "x.npy"
    for version in ((1, 0), (2, 0), (3, 0)):
        stream = io.BytesIO()
        np.lib.format.write_array(stream, rng.standard_normal((3, 5)), version)
        for _ in range(300):
            content = bytearray(stream.getvalue())
            for at in rng.integers(0, 90, rng.integers(1, 4)):
                content[at] = rng.choice(list(b"()[]{}'\",:+-*|<>0123456789jfOVSU \0\xff"))
            path.write_bytes(bytes(content[: rng.integers(4, len(content) + 1)]))
            try:
                read_array(str(path), "x")
            except CommandError as error:
                assert "input 'x'" in str(error)
