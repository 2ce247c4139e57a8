"""Errors for paths without a model, with the cause and the remedy."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from mirlo.extend.runtime import open_regular
from mirlo_llm.generate.errors import ModelFolderError

POINTER = b"version https://git-lfs"
"""The first bytes of git-lfs pointer files."""
START = 64
"""Bytes at the beginning of a file that identify its format."""
_HUB = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
"""Matches the name of a model on a hub."""
CLIENT = "hf"
"""The download command of the hub's own client."""


def no_folder(path: Path, what: str) -> ModelFolderError:
    """Return the error for a path that is no folder; `what` is the expected kind of model."""
    if path.is_file():
        return _file_alone(path, what)
    if _HUB.fullmatch(str(path)) and not path.parent.exists():
        command = f"{CLIENT} download {path} --local-dir {path.name}"
        install = "" if shutil.which(CLIENT) else " (pip install huggingface_hub)"
        advice = f"if it is the name of a model on a hub, download it: {command}{install}"
        return ModelFolderError(f"{path}: there is no such folder: pass the folder of {what}; {advice}")
    return ModelFolderError(f"{path}: there is no such folder: pass the folder of {what}")


def _file_alone(path: Path, what: str) -> ModelFolderError:
    """Return the error for a file where a folder is expected."""
    try:
        with open_regular(path) as file:
            start = file.read(START)
    except OSError as error:
        return ModelFolderError(f"{path}: {error.strerror or error}")
    if is_pointer(start):
        return pointer_error(path)
    if path.suffix == ".gguf":
        actual = f"it begins with {start[:4]!r}" if start else "it is empty"
        return ModelFolderError(
            f"{path}: the file is damaged: expected a GGUF file, which begins with b'GGUF'; {actual}"
        )
    if path.suffix in (".safetensors", ".onnx", ".json"):
        return ModelFolderError(
            f"{path}: this is a file of a model: pass the folder with its {path.parent / 'config.json'}"
        )
    return ModelFolderError(f"{path}: this is a file: pass the folder of {what}")


def is_pointer(start: bytes) -> bool:
    """Return whether a file is a pointer of git-lfs instead of the actual file."""
    return start.startswith(POINTER)


def pointer_error(path: Path) -> ModelFolderError:
    """Return the error for a pointer of git-lfs."""
    place = os.fspath(path.parent)
    return ModelFolderError(
        f"{path}: the file is a pointer of git-lfs, its content was not downloaded: git -C {place} lfs pull"
    )
