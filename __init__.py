"""Mirlo: a machine-learning compiler built on MLIR, in Python from the graph to the kernel."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from mirlo.runtime.entry_points import installed_version

if TYPE_CHECKING:
    from mirlo.driver.compile import compile as compile
    from mirlo.driver.inference.binding import IOBinding as IOBinding
    from mirlo.driver.inference.devices import OrtDevice as OrtDevice
    from mirlo.driver.inference.modules import as_onnxruntime as as_onnxruntime
    from mirlo.driver.inference.nodes import ModelMetadata as ModelMetadata
    from mirlo.driver.inference.nodes import NodeArg as NodeArg
    from mirlo.driver.inference.options import ExecutionMode as ExecutionMode
    from mirlo.driver.inference.options import GraphOptimizationLevel as GraphOptimizationLevel
    from mirlo.driver.inference.options import RunOptions as RunOptions
    from mirlo.driver.inference.options import SessionOptions as SessionOptions
    from mirlo.driver.inference.process import disable_telemetry_events as disable_telemetry_events
    from mirlo.driver.inference.process import set_default_logger_severity as set_default_logger_severity
    from mirlo.driver.inference.process import set_seed as set_seed
    from mirlo.driver.inference.providers import get_available_providers as get_available_providers
    from mirlo.driver.inference.providers import get_device as get_device
    from mirlo.driver.inference.session import InferenceSession as InferenceSession
    from mirlo.driver.inference.values import OrtValue as OrtValue
    from mirlo.driver.models import initial_states as initial_states
    from mirlo.frontends.onnx.custom import onnx_operator as onnx_operator
    from mirlo.frontends.script.language import R as R
    from mirlo.frontends.script.language import T as T
    from mirlo.frontends.script.module import parse_script as parse_script
    from mirlo.frontends.script.module import script as script
    from mirlo.frontends.script.parse_prim import prim_func as prim_func
    from mirlo.frontends.script.printer import script_of as script_of
    from mirlo.passes.pipeline import Pipeline as Pipeline
    from mirlo.passes.rules import legalize as legalize
    from mirlo.passes.schedule.primitives.schedule import Schedule as Schedule
    from mirlo.runtime.errors import MirloError as MirloError
    from mirlo.runtime.executable import Executable as Executable
    from mirlo.runtime.load import load as load
    from mirlo.tools.quantize.static import quantize as quantize

    __version__: str

from mirlo.runtime.interpreter import FewerCollections, make_old, with_frame_space
from mirlo.runtime.known_packages import PackageModules, package_modules
from mirlo.runtime.locks import UNCUT

_LAZY = {
    "Executable": "mirlo.runtime.executable",
    "ExecutionMode": "mirlo.driver.inference.options",
    "GraphOptimizationLevel": "mirlo.driver.inference.options",
    "IOBinding": "mirlo.driver.inference.binding",
    "InferenceSession": "mirlo.driver.inference.session",
    "MirloError": "mirlo.runtime.errors",
    "ModelMetadata": "mirlo.driver.inference.nodes",
    "NodeArg": "mirlo.driver.inference.nodes",
    "OrtDevice": "mirlo.driver.inference.devices",
    "OrtValue": "mirlo.driver.inference.values",
    "Pipeline": "mirlo.passes.pipeline",
    "R": "mirlo.frontends.script.language",
    "RunOptions": "mirlo.driver.inference.options",
    "Schedule": "mirlo.passes.schedule.primitives.schedule",
    "SessionOptions": "mirlo.driver.inference.options",
    "T": "mirlo.frontends.script.language",
    "as_onnxruntime": "mirlo.driver.inference.modules",
    "compile": "mirlo.driver.compile",
    "initial_states": "mirlo.driver.models",
    "disable_telemetry_events": "mirlo.driver.inference.process",
    "get_available_providers": "mirlo.driver.inference.providers",
    "get_device": "mirlo.driver.inference.providers",
    "legalize": "mirlo.passes.rules",
    "load": "mirlo.runtime.load",
    "onnx_operator": "mirlo.frontends.onnx.custom",
    "parse_script": "mirlo.frontends.script.module",
    "prim_func": "mirlo.frontends.script.parse_prim",
    "quantize": "mirlo.tools.quantize.static",
    "script": "mirlo.frontends.script.module",
    "script_of": "mirlo.frontends.script.printer",
    "set_default_logger_severity": "mirlo.driver.inference.process",
    "set_seed": "mirlo.driver.inference.process",
}
"""The modules of the package's names, imported on first use, since most commands need few of them."""

sys.meta_path.append(PackageModules())


_import_module = with_frame_space(importlib.import_module)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        globals()[name] = installed_version("mirlo")
        return globals()[name]
    if name not in _LAZY:
        if name in package_modules():
            return importlib.import_module(f"mirlo.{name}")
        raise AttributeError(f"module 'mirlo' has no attribute '{name}'")
    with UNCUT, FewerCollections():
        value = getattr(_import_module(_LAZY[name]), name)
        make_old()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *package_modules(), "__version__"})
