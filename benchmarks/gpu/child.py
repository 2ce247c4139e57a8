"""A process that runs units: names come in by lines, results go out by lines that begin with a mark.

What breaks the device for a process breaks it for this one only: it says so and ends, and another goes on.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .judge import judge
from .seeds import seeded, weight
from .unit import Check, Kit, Unit

MARK = "@@ "
BROKEN = 3
"""How it ends after an error of the device."""
LIBRARIES = ("torch", "cuda-bindings", "numpy", "ml_dtypes")
DEVICE = "device"
"""The name of what is asked for first: which device there is."""


def main() -> int:
    """Run the requested units."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checks-only", action="store_true")
    parser.add_argument("--inductor", action="store_true")
    arguments = parser.parse_args()
    kit = Kit.read(arguments.folder)
    units = {unit.name: unit for unit in kit.units}
    for line in sys.stdin:
        name = json.loads(line)
        try:
            row = _device(kit.target) if name == DEVICE else _run(units[name], arguments)
        except Exception as problem:
            text = f"{type(problem).__name__}: {problem}"
            row = {"status": "failed", "detail": text.strip()[:2000], "trace": traceback.format_exc()[-2000:]}
        _say(row)
        _let_go()
        if row["status"] == "failed" and any(word in row["detail"] for word in ("CUDA_ERROR", "CUDA error")):
            return BROKEN
    return 0


def _let_go() -> None:
    """Give memory of the device back: the next unit may be large."""
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
        sys.modules["torch"].cuda.empty_cache()


def _say(row: dict[str, Any]) -> None:
    print(f"\n{MARK}{json.dumps(row)}", flush=True)


def _device(target: str) -> dict[str, Any]:
    """Describe the device, and the packages to compare with."""
    row: dict[str, Any] = {"status": "ok", "versions": {name: _version(name) for name in LIBRARIES}}
    if not target.startswith("nvvm"):
        return {**row, "name": f"this machine by target {target}"}
    from mirlo.targets.nvvm.device import check, first_gpu

    gpu = first_gpu()
    row |= {"capability": list(gpu.capability), "units": gpu.units}
    name = check(gpu.cuda.cuDeviceGetName(128, gpu.handle), "asking for the name")
    return {**row, "name": bytes(name).split(b"\0")[0].decode()}


def _version(library: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _run(unit: Unit, arguments: Any) -> dict[str, Any]:
    if unit.group == "copy":
        from .measure import copied_bytes_a_second

        return {"status": "ok", "gbytes": 1e-9 * copied_bytes_a_second(int(unit.moved))}
    start = time.perf_counter()
    model = load(unit, arguments.folder)
    data = np.load(arguments.folder / unit.data) if unit.data else {}
    inputs = [_input(source, spec, data) for source, spec in zip(unit.inputs, model.inputs, strict=True)]
    loaded = time.perf_counter()
    returned = model(*inputs)
    outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    first = time.perf_counter()
    rows = [_checked(check, inputs, outputs, data) for check in unit.checks]
    wrong = [row for row in rows if not row["ok"]]
    # A second call launches what the first one recorded, and must give the same.
    again = model(*inputs)
    for number, (one, other) in enumerate(
        zip(outputs, again if isinstance(again, (tuple, list)) else [again], strict=True)
    ):
        if one.tobytes() != other.tobytes():
            wrong.append({"name": f"output {number}", "ok": False, "error": float("inf"), "bound": 0.0,
                          "why": "another call gives another result"})  # fmt: skip
    if model.artifact.loader == "cuda" and unit.is_small:
        wrong += _stays_there(model, inputs, outputs)
    result: dict[str, Any] = {
        "status": "wrong" if wrong else "ok", "checks": len(rows), "wrong": wrong,
        "error": max((row["error"] for row in rows), default=0.0),
        "load_s": loaded - start, "first_s": first - loaded,
    }  # fmt: skip
    if unit.is_measured and not arguments.checks_only:
        from .measure import measured

        try:
            result |= measured(unit, model, inputs, arguments.folder, arguments.inductor)
        except Exception as problem:  # what was checked is reported all the same
            result |= {"status": "failed", "detail": f"measuring: {type(problem).__name__}: {problem}"}
    result["seconds"] = time.perf_counter() - start
    model.release_arenas()
    return result


def _stays_there(model: Any, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> list[dict[str, Any]]:
    """Run with results that stay on the device and are copied from there; return what differs."""
    result = model.on_device(*inputs)
    arrays = [array.numpy() for array in (result if isinstance(result, (tuple, list)) else [result])]
    differ = [n for n, (one, other) in enumerate(zip(outputs, arrays, strict=True)) if one.tobytes() != other.tobytes()]
    why = {"ok": False, "error": float("inf"), "bound": 0.0, "why": "it differs on the device"}
    return [{"name": f"output {number}", **why} for number in differ]


def load(unit: Unit, folder: Path) -> Any:
    """Return the compiled model of a unit, with its weights."""
    from mirlo.runtime import artifact as artifacts
    from mirlo.runtime.artifact import TensorSpec
    from mirlo.runtime.executable import Executable

    artifact, store = artifacts.load(folder / unit.model)
    if unit.weights is not None:
        specs = []
        for row in unit.weights:
            specs.append(TensorSpec(row["name"], row["dtype"], tuple(row["shape"])))
            if "initializer" in row and row["name"] not in store:
                store.add(row["name"], weight(row))
        artifact = replace(artifact, params=tuple(specs))
    return Executable(artifact, store)


def _input(source: Any, spec: Any, data: Any) -> np.ndarray:
    if "key" in source:
        from mirlo.runtime.dtypes import numpy_dtype

        held: np.ndarray = data[source["key"]]
        return held.view(numpy_dtype(spec.dtype)) if held.dtype.kind == "V" else held
    shape = source.get("shape") or spec.static_shape
    return seeded(source["seed"], spec.dtype, shape, **source.get("how", {}))


def _checked(check: Check, inputs: list[np.ndarray], outputs: list[np.ndarray], data: Any) -> dict[str, Any]:
    stored = [data[key] for key in check.facts["keys"]] if check.kind == "stored" else []
    error = judge(check.kind, check.facts, inputs, [outputs[i] for i in check.outputs], stored)
    return {"name": check.name, "ok": bool(error <= check.bound), "error": error, "bound": check.bound}


if __name__ == "__main__":
    sys.exit(main())
