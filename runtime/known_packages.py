"""The packages of Mirlo's repository by the names that they offer, for errors that say how to install them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mirlo.runtime.entry_points import offered

PACKAGES = {
    "commands": {
        "chat": "mirlo-llm",
        "embed": "mirlo-llm",
        "generate": "mirlo-llm",
        "lsp": "mirlo-editor",
        "perplexity": "mirlo-llm",
        "serve": "mirlo-llm",
        "transcribe": "mirlo-llm",
    },
    "compile_options": {"rank": "mirlo-ranks", "rank_plan": "mirlo-ranks", "ranks": "mirlo-ranks"},
    "file_forms": {"stablehlo": "mirlo-stablehlo", "tflite": "mirlo-tflite", "tosa": "mirlo-tflite"},
    "folders": {"language-models": "mirlo-llm"},
    "model_files": {"ranks": "mirlo-ranks"},
    "passes": {"shard": "mirlo-ranks"},
    "strategies": {"ranks": "mirlo-ranks"},
    "methods": {"pages": "mirlo-llm", "pool": "mirlo-llm", "state": "mirlo-llm", "windows": "mirlo-llm"},
    "modules": {"caches": "mirlo-llm", "generate": "mirlo-llm", "ray": "mirlo-llm", "serve": "mirlo-llm"},
    "names": {
        "extend.frontend.aten_converter": "mirlo-torch",
        "extend.frontend.torch_operator": "mirlo-torch",
        "extend.frontend.stablehlo_converter": "mirlo-stablehlo",
        "extend.frontend.tosa_converter": "mirlo-tflite",
    },
    "frontends": {
        "jax": "mirlo-stablehlo",
        "jaxlib": "mirlo-stablehlo",
        "sklearn": "mirlo-sklearn",
        "torch": "mirlo-torch",
    },
    "targets": {
        "collectives": "mirlo-ranks",
        "cublas": "mirlo-cublas",
        "cudnn": "mirlo-cudnn",
        "onednn": "mirlo-onednn",
        "onnx": "mirlo-onnxruntime",
        "onnxruntime": "mirlo-onnxruntime",
    },
    "loaders": {
        "cublaslt": "mirlo-cublas",
        "cudnn": "mirlo-cudnn",
        "mpi": "mirlo-ranks",
        "onednn": "mirlo-onednn",
        "onnx": "mirlo-onnxruntime",
        "shared-memory": "mirlo-ranks",
    },
}
"""The package of each name, by group of entry points without `mirlo.`; a test compares it with the packages in
`plugins`."""

COMMANDS = {
    "chat": "chat with a language model",
    "embed": "compute embeddings of texts, or rank texts by a query",
    "generate": "generate text with a language model",
    "lsp": "run the language server for editors, on standard input and output",
    "perplexity": "measure how well a language model predicts a text",
    "serve": "serve models over HTTP: OpenAI's API and the Open Inference Protocol",
    "transcribe": "transcribe the speech of a sound file",
}
"""The line of help of each command, which `mirlo --help` prints whether or not its package is installed."""


def install_command(group: str, name: str) -> str | None:
    """Return the command that installs the package which offers a name in a group, or None for others."""
    package = PACKAGES.get(group.removeprefix("mirlo."), {}).get(name)
    return package and f"pip install {package}"


GROUP = "mirlo.modules"


class PackageModules:
    """Finds `mirlo.NAME.inner` of a package: another name of `package.module.inner`, the same module.

    Python asks it last, for what no folder of Mirlo has; once a name was found also first, as Python's own finders
    would load the modules below that name a second time.
    """

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the place of a module of a package, or None for other modules."""
        first, _, rest = name.partition(".")
        if first != "mirlo" or not rest:
            return None
        module, _, inner = rest.partition(".")
        if module not in self._found:
            if inner or not self._find(module):
                return None
            sys.meta_path.insert(0, self)
        alias: Any = _Alias(".".join(filter(None, (self._found[module], inner))))
        return ModuleSpec(name, alias)

    def _find(self, module: str) -> bool:
        """Return whether a package offers a module; raise an error if one does that is not installed."""
        for entry in offered(GROUP):
            if entry.name == module:
                self._found[module] = entry.value
                return True
        if module in PACKAGES["modules"]:
            package = PACKAGES["modules"][module]
            what = f"mirlo.{module} is in a package that is not installed: {install_command(GROUP, module)}"
            raise ModuleNotFoundError(what, name=package.replace("-", "_"))
        return False


class _Alias:
    """Loads a module under another name: both are the same object."""

    def __init__(self, module: str) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._module)


def package_modules() -> list[str]:
    """Return the names of modules that installed packages offer."""
    return sorted(entry.name for entry in offered(GROUP))
