"""Files that Mirlo writes: regular ones only, whole or not at all."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import numpy as np
import pytest
from commands import mirlo, output_of
from onnx_models import F32, make_model, node

from mirlo.runtime.files import replacing, require_writable, write_regular


def fifo(path: Path) -> None:
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.mkdir()


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


SPECIAL = {"pipe": fifo, "socket": listener, "directory": make_folder}
"""How what is no regular file is made, by what errors call it."""
needs_special_files = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no such files")


@needs_special_files
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_stays(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "target"
    SPECIAL[kind](target)
    before = os.lstat(target).st_mode, os.stat(target).st_mode
    for link in (target, tmp_path / "link"):
        if link != target:
            link.symlink_to(target)
        with pytest.raises(OSError, match=f"(?i)it is a {kind}, expected a regular file|is a {kind}"):
            write_regular(link, b"content")
        with pytest.raises(OSError, match=f"(?i)is a {kind}"):
            require_writable(link)
    assert (os.lstat(target).st_mode, os.stat(target).st_mode) == before
    assert sorted(os.listdir(tmp_path)) == ["link", "target"]


@needs_special_files
def test_links_stay_and_lead_to_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("file", "missing"):
        target, link = tmp_path / "folder" / name, tmp_path / name
        link.symlink_to(Path("folder") / name)
        if name == "file":
            target.write_bytes(b"old")
            target.chmod(0o640)
        write_regular(link, "new ä\n")
        assert os.readlink(link) == str(Path("folder") / name)
        assert target.read_bytes() == "new ä\n".encode()
    assert stat.S_IMODE((tmp_path / "folder" / "file").stat().st_mode) == 0o640
    assert len(os.listdir(tmp_path / "folder")) == 2


def test_files_are_whole_or_not_written(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 200)
    write_regular(target, b"old")
    with pytest.raises(ValueError, match="halfway"), replacing(target) as file:
        file.write(b"new")
        raise ValueError("halfway")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [target.name]
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "missing" / "file"))):
        write_regular(tmp_path / "missing" / "file", b"")


@needs_special_files
def test_the_null_device_is_written_to_and_stays(tmp_path: Path) -> None:
    """`mirlo-opt FILE -o /dev/null` only runs the passes. Here is a link: making a device needs rights."""
    (tmp_path / "null").symlink_to("/dev/null")
    write_regular(tmp_path / "null", b"content" * 100000)
    with replacing(tmp_path / "null") as file:
        np.save(file, np.zeros(9))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.listdir(tmp_path) == ["null"]


WRITERS = {
    "compile": ("compile", "m.onnx", "-o"),
    "import": ("import", "m.onnx", "-o"),
    "import, script": ("import", "m.onnx", "--script", "-o"),
    "quantize": ("quantize", "m.onnx", "-o"),
    "explorer": ("explorer", "m.onnx", "-o"),
    "partition": ("partition", "m.onnx", "--target", "onednn,llvm", "--report"),
}
"""Commands that write a file, whose name follows."""


@needs_special_files
@pytest.mark.parametrize("command", WRITERS)
def test_commands_replace_no_device_and_no_pipe(command: str, tmp_path: Path) -> None:
    matrix = np.ones((32, 8), np.float32)
    model = make_model([node("MatMul", "x w", "y")], {"x": (F32, [1, 32])}, ["y"], {"w": matrix})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    os.mkfifo(tmp_path / "pipe.json")
    result = mirlo(*WRITERS[command], "pipe.json", cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search(r"pipe.json'?: .*it is a pipe, expected a regular file", result.stderr), result.stderr
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe.json").st_mode)
    (tmp_path / "null.json").symlink_to("/dev/null")
    output_of(mirlo(*WRITERS[command], "null.json", cwd=tmp_path))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.readlink(tmp_path / "null.json") == "/dev/null"
