"""The tools of the pip packages `tosa-tools` and `ethos-u-vela`, as processes."""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SECONDS = 600
"""Time limit of a tool; no region of the tested models takes a tenth of it."""


class ToolError(RuntimeError):
    """A tool failed on its input; the text contains its message."""


class MissingTool(ToolError):
    """A tool is not installed."""


@dataclass(frozen=True)
class Configuration:
    """A configuration of Vela, and its peak rates."""

    system: str
    """The section of Vela's `vela.ini`."""
    memory: str
    megahertz: int
    gbytes: float
    """Billions of bytes per second to and from SRAM."""


_U55 = ("Ethos_U55_High_End_Embedded", "Shared_Sram", 500, 4.0)
_U65 = ("Ethos_U65_High_End", "Dedicated_Sram", 1000, 16.0)
_U85 = ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB", 1000, 32.0)
_SIZES = {_U55: ("ethos-u55", (32, 64, 128, 256)), _U65: ("ethos-u65", (256, 512)),
          _U85: ("ethos-u85", (128, 256, 512, 1024, 2048))}  # fmt: skip
ACCELERATORS = {
    f"{series}-{size}": Configuration(*values) for values, (series, sizes) in _SIZES.items() for size in sizes
}
"""Accelerators of Vela, by name; the last number is multiply-adds per cycle."""


@dataclass(frozen=True)
class Estimate:
    """Vela's estimate for a region."""

    cycles: int
    macs: int
    """Multiply-adds."""
    sram: int
    """Bytes of SRAM."""
    flash: int
    """Bytes of weights and commands outside of SRAM."""


def missing_tools() -> list[str]:
    """Return the pip packages that are not installed."""
    missing = [] if _find("tosa-opt") and _find("tosa_reference_model") else ["tosa-tools"]
    return missing if importlib.util.find_spec("ethosu") else [*missing, "ethos-u-vela"]


def versions() -> str:
    """Return the versions of the installed tools as text."""
    found = []
    for package in ("tosa-tools", "ethos-u-vela"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} missing")
    return ", ".join(found)


def serialize(text: str) -> bytes:
    """Return a module in TOSA's flatbuffer format."""
    with tempfile.TemporaryDirectory() as temporary:
        source, result = Path(temporary, "region.mlir"), Path(temporary, "region.tosa")
        source.write_text(text, encoding="utf-8")
        _run([_tool("tosa-opt"), source, "--tosa-serialize", f"--tosa-flatbuffer-filename={result}"])
        if not result.is_file():
            raise ToolError("tosa-opt wrote no flatbuffer")
        return result.read_bytes()


def compile_region(flatbuffer: bytes, accelerator: str) -> tuple[bytes, Estimate]:
    """Return Vela's command stream of a region, and its estimate."""
    if importlib.util.find_spec("ethosu") is None:
        raise MissingTool("Vela is missing: pip install ethos-u-vela")
    configuration = ACCELERATORS[accelerator]
    with tempfile.TemporaryDirectory() as temporary:
        source, folder = Path(temporary, "region.tosa"), Path(temporary, "out")
        source.write_bytes(flatbuffer)
        _run(
            [
                sys.executable, "-m", "ethosu.vela", source, "--accelerator-config", accelerator, "--config",
                "Arm/vela.ini", "--system-config", configuration.system, "--memory-mode", configuration.memory,
                "--output-dir", folder,
            ]
        )  # fmt: skip
        streams, summaries = list(folder.glob("*_vela.tflite")), list(folder.glob("*_summary_*.csv"))
        if not streams or not summaries:
            raise ToolError("Vela wrote no command stream")
        with summaries[0].open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file))
        kib = {name: float(row[f"{name}_memory_used"]) for name in ("sram", "dram", "on_chip_flash", "off_chip_flash")}
        outside = sum(kib.values()) - kib["sram"]
        estimate = Estimate(
            round(float(row["cycles_total"])), round(float(row["nn_macs"])), round(kib["sram"] * 1024),
            round(outside * 1024),
        )  # fmt: skip
        return streams[0].read_bytes(), estimate


def execute(flatbuffer: bytes, inputs: Sequence[np.ndarray], outputs: int) -> list[np.ndarray]:
    """Return the results of TOSA's reference model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.joinpath("region.tosa").write_bytes(flatbuffer)
        for i, array in enumerate(inputs):
            np.save(folder / f"x{i}.npy", np.ascontiguousarray(array))
        names = {
            "ifm_name": [f"TosaInput_{i}" for i in range(len(inputs))],
            "ifm_file": [f"x{i}.npy" for i in range(len(inputs))],
            "ofm_name": [f"TosaOutput_{i}" for i in range(outputs)],
            "ofm_file": [f"y{i}.npy" for i in range(outputs)],
        }
        flags = [f"--{name}={','.join(values)}" for name, values in names.items()]
        where = ["--tosa_file=region.tosa", f"--flatbuffer_dir={folder}", f"--output_dir={folder}"]
        _run([_tool("tosa_reference_model"), *where, *flags], folder)
        return [np.load(folder / f"y{i}.npy", allow_pickle=False) for i in range(outputs)]


def _find(name: str) -> str | None:
    """Return the path of a program of `tosa-tools`: on PATH, next to this Python, or in the installed package."""
    places = [os.environ.get("PATH", ""), str(Path(sys.executable).parent)]
    package = importlib.util.find_spec("tosa_tools_cli")
    if package is not None and package.origin is not None:
        places.append(str(Path(package.origin).parents[1] / "bin"))
    return shutil.which(name, path=os.pathsep.join(places))


def _tool(name: str) -> str:
    found = _find(name)
    if found is None:
        raise MissingTool(f"{name} is missing: pip install tosa-tools")
    return found


def _run(command: Sequence[str | Path], folder: Path | None = None) -> None:
    try:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, cwd=folder, timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{Path(str(command[0])).name} did not end within {SECONDS} seconds") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip() and line[0] not in "#["]
        raise ToolError(f"{Path(str(command[0])).name} failed: {' '.join(lines[:6]) or f'code {done.returncode}'}")
