"""The modules of the package `onnxruntime`, made of Mirlo's sessions: `mirlo.as_onnxruntime`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from mirlo.driver.inference import binding, devices, errors, nodes, options, process, providers, session, values
from mirlo.driver.inference.process import API_VERSION
from mirlo.runtime.errors import MirloError

_PACKAGE = "onnxruntime"
_SOURCES: dict[ModuleType, tuple[str, ...]] = {
    session: ("InferenceSession",),
    options: ("SessionOptions", "RunOptions", "GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"),
    values: ("OrtValue",),
    binding: ("IOBinding",),
    devices: ("OrtDevice",),
    nodes: ("NodeArg", "ModelMetadata"),
    providers: ("get_available_providers", "get_all_providers", "get_device"),
    process: (
        "get_version_string", "get_build_info", "print_debug_info", "set_default_logger_severity",
        "set_default_logger_verbosity", "set_default_logger_callback", "set_seed", "disable_telemetry_events",
        "enable_telemetry_events", "has_collective_ops", "set_global_thread_pool_sizes", "preload_dlls",
        "create_and_register_allocator", "get_ep_devices", "register_execution_provider_library",
    ),
}  # fmt: skip
"""The names of the package, by the modules that define them."""
_EXCEPTIONS = (
    "Fail", "InvalidArgument", "NoSuchFile", "NoModel", "RuntimeException", "InvalidProtobuf",
    "ModelLoaded", "NotImplemented", "InvalidGraph", "EPFail", "ModelLoadCanceled", "ModelRequiresCompilation",
    "NotFound",
)  # fmt: skip
_CAPI = ("onnxruntime_pybind11_state", "_pybind_state", "onnxruntime_inference_collection")
"""Modules of `onnxruntime.capi` that programs import classes and exceptions from."""


class ReplacedTooLate(MirloError, RuntimeError):
    """Raised where the package `onnxruntime` was imported before it is replaced."""

    error_code = "MIR0610"
    remedy = "Import `mirlo.as_onnxruntime` before `onnxruntime`."


def as_onnxruntime() -> ModuleType:
    """Replace the module `onnxruntime` in this process by one with Mirlo's sessions; return it.

    Programs and packages that use ONNX Runtime then run on compiled models, unchanged. Call it before anything imports
    `onnxruntime`. Where ONNX Runtime is installed, its subpackages in Python (`quantization`, `transformers`, `tools`,
    ...) are imported from there, and use Mirlo's sessions; its library is never loaded.
    """
    present = sys.modules.get(_PACKAGE)
    if present is not None:
        if isinstance(present, ReplacedModule):
            return present
        raise ReplacedTooLate(
            "mirlo.as_onnxruntime(): the package 'onnxruntime' is imported already, and programs hold its classes: "
            "call this before anything that imports it"
        )
    names = {name: getattr(module, name) for module, listed in _SOURCES.items() for name in listed}
    exceptions = {name: getattr(errors, name) for name in _EXCEPTIONS} | {"EngineError": errors.EngineFailure}
    capi = _module("onnxruntime.capi", {}, is_package=True)
    for name in _CAPI:
        _add(capi, name, {**names, **exceptions, "Session": session.InferenceSession})
    _add(capi, "onnxruntime_validation", {
        "check_distro_info": process.check_distro_info,
        "get_package_name_and_version_info": process.get_package_name_and_version_info,
    })  # fmt: skip
    content = {**names, "capi": capi, "__version__": API_VERSION}
    package = _module(_PACKAGE, content, is_package=True, folders=_installed_folders())
    package.__all__ = sorted(names)
    sys.modules.update({module.__name__: module for module in _tree(package)})
    return package


class ReplacedModule(ModuleType):
    """A module in the place of one of ONNX Runtime's."""

    __all__: list[str]

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"mirlo.as_onnxruntime: module '{self.__name__}' has no '{name}'")


def _installed_folders() -> list[str]:
    """Return the folders of an installed ONNX Runtime; none if there is none."""
    spec = PathFinder.find_spec(_PACKAGE)
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _module(
    name: str, content: dict[str, object], is_package: bool = False, folders: Sequence[str] = ()
) -> ReplacedModule:
    module = ReplacedModule(name, "Mirlo's sessions under the names of ONNX Runtime.")
    module.__spec__ = ModuleSpec(name, None, origin="mirlo", is_package=is_package)
    if is_package:
        module.__path__ = list(folders)
        module.__spec__.submodule_search_locations = list(folders)
    vars(module).update(content)
    return module


def _add(package: ReplacedModule, name: str, content: dict[str, object]) -> None:
    setattr(package, name, _module(f"{package.__name__}.{name}", content))


def _tree(package: ReplacedModule) -> Iterable[ReplacedModule]:
    yield package
    for value in list(vars(package).values()):
        if isinstance(value, ReplacedModule):
            yield from _tree(value)
