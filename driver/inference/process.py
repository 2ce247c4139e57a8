"""ONNX Runtime's functions that concern the whole process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from mirlo.driver.inference.errors import BindingError, UnsupportedInterface
from mirlo.driver.inference.ignored import LOGGER, note_ignored
from mirlo.runtime.entry_points import installed_version

API_VERSION = "1.22.0"
"""The version of ONNX Runtime whose interface sessions have."""
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""The levels of ONNX Runtime's severities."""


def get_version_string() -> str:
    """Return the version of ONNX Runtime whose interface sessions have."""
    return API_VERSION


def get_build_info() -> str:
    """Return the name and version of the engine."""
    return f"Mirlo {installed_version('mirlo')}, with the interface of ONNX Runtime {API_VERSION}"


def print_debug_info() -> None:
    """Print the name and version of the engine."""
    print(get_build_info())


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """Return the package's name and version, and no version of CUDA."""
    return "onnxruntime", API_VERSION, ""


def check_distro_info() -> None:
    """Do nothing: Mirlo needs no distribution's libraries."""


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the logger "mirlo": 0 for debug to 4 for critical."""
    if not 0 <= severity < len(_LEVELS):
        raise BindingError(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    LOGGER.setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accept a level of detail."""
    note_ignored("set_default_logger_verbosity", "messages have one level of detail")


def set_default_logger_callback(callback: Callable[..., object]) -> None:
    """Accept a function for messages."""
    note_ignored("set_default_logger_callback", "add a handler to the logger 'mirlo'")


def set_seed(seed: int) -> None:
    """Accept a seed for operators without one."""
    note_ignored("set_seed", "random operators have the seed of their node")


def disable_telemetry_events() -> None:
    """Do nothing: nothing is ever sent."""


def enable_telemetry_events() -> None:
    """Do nothing: nothing is ever sent."""


def has_collective_ops() -> bool:
    """Return False: sessions do not communicate."""
    return False


def set_global_thread_pool_sizes(intra_op_num_threads: int, inter_op_num_threads: int) -> None:
    """Accept the sizes of global pools."""
    note_ignored("set_global_thread_pool_sizes", "SessionOptions.intra_op_num_threads has an effect")


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Do nothing: targets find their libraries."""


def create_and_register_allocator(*arguments: object) -> None:
    """Accept an allocator."""
    note_ignored("create_and_register_allocator", "the memory of a call is planned when a model is compiled")


def get_ep_devices() -> list[object]:
    """Return no devices of execution providers in libraries."""
    return []


def register_execution_provider_library(name: str, path: str) -> NoReturn:
    """Refuse a provider for ONNX Runtime."""
    raise UnsupportedInterface(
        f"'{path}': libraries of execution providers are made for ONNX Runtime; add a target to Mirlo"
    )
