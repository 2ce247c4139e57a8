"""The provider as a shared library, built by the machine's C compiler once for each version of its sources."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from mirlo.extend.target import run_time_files
from mirlo_onnxruntime_ep.compiler import cache_folder

SOURCES = Path(__file__).parent / "provider"
NAME = "libmirlo_onnxruntime_ep.so"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


class BuildError(Exception):
    """The provider cannot be built."""


def compiler() -> str:
    """Return the C compiler."""
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found is None:
        raise BuildError("the provider is built by a C compiler, and there is none: install gcc or clang")
    return found


@functools.cache
def library_path() -> Path:
    """Return the library of the provider, built at the first call."""
    digest = hashlib.sha256(repr((compiler(), FLAGS, sys.executable, _version())).encode())
    for name, content in sorted(_files().items()):
        digest.update(name.encode() + content)
    path = cache_folder() / f"provider-{digest.hexdigest()[:24]}" / NAME
    if not path.exists():
        build(path)
    return path


def build(path: Path, python: str = sys.executable) -> None:
    """Build the provider; `python` is the default interpreter that compiles models."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        folder = Path(name)
        for file, content in _files().items():
            (folder / file).write_bytes(content)
        words = [compiler(), *FLAGS, f'-DMIRLO_EP_VERSION="{_version()}"', f'-DMIRLO_PYTHON="{python}"', f"-I{folder}"]
        words += [*map(str, sorted(folder.glob("*.c"))), "-o", str(folder / NAME), "-ldl", "-lm"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{words[0]} does not build the provider:\n{done.stderr}")
        os.replace(folder / NAME, path)


def _files() -> dict[str, bytes]:
    own = {path.name: path.read_bytes() for path in SOURCES.iterdir() if path.suffix in (".c", ".h")}
    return own | run_time_files()


def _version() -> str:
    return version("mirlo-onnxruntime-ep")
