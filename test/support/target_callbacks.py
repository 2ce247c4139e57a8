"""Calls of functions of users in targets of GPUs and in commands of packages."""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable
from typing import Any

from callback_values import MODEL

import mirlo
import mirlo.extend
from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.extend.command import PackageCommand
from mirlo.extend.gpu import emit_kernels, gpu_pipeline, kernel_texts
from mirlo.extend.target import CodeForm, Target, register_target
from mirlo.tools.cli.arguments import _add_command


def run_command(command: PackageCommand) -> None:
    """Run the command of a package."""
    entry = types.SimpleNamespace(name="callbacks", load=lambda: command)
    parser = argparse.ArgumentParser()
    _add_command(entry, parser.add_subparsers(), lambda commands, name, text: commands.add_parser(name))
    arguments = parser.parse_args(["callbacks"])
    arguments.execute(arguments)


def of_arguments(made: Callable[[], Any]) -> None:
    run_command(PackageCommand("help", lambda parser: made(), lambda arguments: None))


def of_command(made: Callable[[], Any]) -> None:
    run_command(PackageCommand("help", lambda parser: None, lambda arguments: made()))


def gpu_target(emitted: Callable[[Any], Any]) -> None:
    """Register a target of GPUs whose kernels are compiled by a function."""

    class Own(Target):
        def pipeline(self, options: Any) -> str:
            return gpu_pipeline("callbacks", alignment=256)

        def emit(self, module: Any, options: Any) -> Any:
            return emit_kernels(module, "callbacks", "vulkan", emitted)

        def code(self, module: Any, options: Any) -> Any:
            return kernel_texts(module, emitted)

    forms = (CodeForm("own", ".own", "//"),)
    register_target(Own("callbacks", "of a test", parent="spirv", loader="vulkan", forms=forms))


def of_emitted_kernels(made: Callable[[], Any]) -> None:
    gpu_target(lambda module: made())
    mirlo.compile(MODEL, "callbacks", cache=False)


def of_texts_of_kernels(made: Callable[[], Any]) -> None:
    gpu_target(lambda module: made())
    kernel_listings(CompileRequest(MODEL, "callbacks", cache=False), "own")


KINDS: dict[Callable[..., None], set[str]] = {
    of_arguments: {"None"},
    of_command: {"None"},
    of_emitted_kernels: {"list", "tuple"},
    of_texts_of_kernels: {"list", "tuple"},
}
"""The functions that call a callback, each with the names of values that are valid results or other errors."""
