"""Bundles: folders with everything needed to reproduce a departure."""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from mirlo.driver.save_code import CODE_FOLDER
from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import read_regular, replacing, write_regular
from mirlo.runtime.names import file_name, shell_word
from mirlo.tools.bisect.oracles import Oracle
from mirlo.tools.bisect.passes import Culprit
from mirlo.tools.bisect.submodel import Submodel
from mirlo.tools.bisect.trial import TrialOptions, try_submodel

if TYPE_CHECKING:
    from mirlo.tools.bisect.compare import ModelValue

PACKAGES = ("mirlo", "torch-mlir", "llvmlite", "onnx", "onnxruntime", "numpy")


REPORT = "report.json"
UNDETERMINED = "undetermined"
"""What the report says where no pass can be named."""


class BundleError(MirloError):
    """A folder that cannot be written."""

    error_code = "MIR0705"
    remedy = "Name a bundle that `mirlo bisect` wrote."


def write_bundle(
    folder: Path,
    part: Submodel,
    expected: Mapping[str, ModelValue],
    culprit: Culprit,
    settings: TrialOptions,
    against: str,
    facts: Mapping[str, object],
) -> str:
    """Write the submodel, its inputs, the expected outputs and the IR around the pass.

    Return the command to replay it.
    """
    _prepare(folder)
    write_regular(folder / "model.onnx", part.model.SerializeToString())
    input_flags = [shell_word(f"--input={name}={path}") for name, path in _arrays(folder, "input", part.feeds)]
    _arrays(folder, "expected", {name: expected[name] for name in part.outputs})
    replay = " ".join(
        ["mirlo bisect model.onnx", f"--against {shell_word(against)}", f"--target {shell_word(settings.target)}"]
        + ([f"--threads {settings.threads}"] if settings.threads != 1 else [])
        + [
            f"--{name} {value!r}"
            for name, value in (("rtol", settings.tolerance.rtol), ("atol", settings.tolerance.atol))
            if value is not None
        ]
        + ([f"--pipeline {shell_word(settings.pipeline)}"] if settings.pipeline is not None else [])
        + (settings.board.flags if settings.board is not None else [])
        + [f"--plugin {shell_word(_plugin(name))}" for name in settings.plugins]
        + input_flags
    )
    _ir(folder, part, expected, culprit, settings)
    report = {
        **facts,
        "replay": replay,
        "pass": culprit.name or UNDETERMINED,
        **({"why": culprit.reason} if culprit.name is None else {}),
        **({"rule": culprit.rule} if culprit.rule else {}),
        **({"pattern": culprit.pattern} if culprit.pattern else {}),
        "fails": culprit.failed,
        "pipeline": culprit.pipeline,
        "rules": list(culprit.rules),
        "versions": {"python": platform.python_version(), "machine": platform.machine(), **_versions()},
    }
    write_regular(folder / REPORT, json.dumps(report, indent=2) + "\n")
    return replay


def replays(folder: Path, part: Submodel, settings: TrialOptions, oracle: Oracle) -> bool:
    """Return whether the model in the folder departs from the oracle."""
    model = onnx.load(folder / "model.onnx")
    files = {name: np.load(folder / path) for name, path in _paths("input", part.feeds)}
    # NumPy files do not support bf16: such arrays are read back as bytes.
    feeds = {
        name: files[name].view(np.asarray(array).dtype) if name in files else array
        for name, array in part.feeds.items()
    }
    again = replace(part, model=model, feeds=feeds)
    return try_submodel(again, oracle(model, feeds, part.outputs), settings).departs is not None


def _plugin(name: str) -> str:
    """Return a plug-in by a name that is valid from the bundle's folder too."""
    return str(Path(name).absolute()) if Path(name).exists() else name


def _prepare(folder: Path) -> None:
    """Create the folder; remove the files of an earlier search, but no others."""
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / REPORT).is_file():
            raise BundleError(f"'{folder}' exists and is not of an earlier search: name another folder with -o")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(f"cannot write to '{folder}': {error.strerror or error}") from error


def _arrays(folder: Path, what: str, arrays: Mapping[str, ModelValue]) -> list[tuple[str, str]]:
    """Write tensors to files; sequences and strings have no file format."""
    result = _paths(what, arrays)
    for name, path in result:
        with replacing(folder / path) as file:
            np.save(file, np.asarray(arrays[name]))
    return result


def _paths(what: str, arrays: Mapping[str, ModelValue]) -> list[tuple[str, str]]:
    paths = []
    for index, (name, array) in enumerate(arrays.items()):
        if isinstance(array, (list, tuple)) or array is None or np.asarray(array).dtype.kind in "OSU":
            continue
        paths.append((name, f"{what}-{index}-{file_name(name)}.npy"))
    return paths


def _ir(
    folder: Path, part: Submodel, expected: Mapping[str, ModelValue], culprit: Culprit, settings: TrialOptions
) -> None:
    """Write the IR before and after the pass, or of all stages if no single pass is to blame.

    Where a pass fails, the last stage that was written is the IR before it.
    """
    with tempfile.TemporaryDirectory() as stages:
        pipeline = settings.pipeline if culprit.failed else culprit.pipeline
        try_submodel(part, expected, replace(settings, pipeline=pipeline), save_ir=stages)
        files = sorted(Path(stages).rglob("*.mlir") if culprit.failed else Path(stages).glob("*.mlir"))
        files = [file for file in files if file.parent.name != CODE_FOLDER]
        if culprit.failed:
            chosen = {file: "before.mlir" for file in files[-1:]}
        elif culprit.name is None or len(files) <= culprit.position + 1:
            chosen = {file: f"ir-{file.name}" for file in files}
        else:
            chosen = {files[culprit.position]: "before.mlir", files[culprit.position + 1]: "after.mlir"}
        for file, name in chosen.items():
            write_regular(folder / name, read_regular(file))


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
