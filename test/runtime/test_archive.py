"""Archives of object files."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mirlo.runtime import archive

MEMBERS = [("main.o", b"\x7fELFabc"), ("a_kernel_with_a_long_name.o", b""), ("b.o", bytes(range(256)))]


def test_round_trip() -> None:
    assert archive.unpack(archive.pack(MEMBERS)) == MEMBERS


@pytest.mark.skipif(shutil.which("ar") is None, reason="there is no ar")
def test_ar_reads_it(tmp_path) -> None:
    (tmp_path / "m.a").write_bytes(archive.pack(MEMBERS))
    listed = subprocess.run(["ar", "t", str(tmp_path / "m.a")], capture_output=True, text=True, check=True).stdout
    assert listed.split() == [name for name, _ in MEMBERS]


@pytest.mark.parametrize("cut", [9, 40, 90, 130])
def test_damage_is_an_error(cut: int) -> None:
    with pytest.raises(archive.BadArchive):
        archive.unpack(archive.pack(MEMBERS)[:cut])


def test_other_bytes_are_an_error() -> None:
    with pytest.raises(archive.BadArchive, match="not an archive"):
        archive.unpack(b"\x7fELF")
