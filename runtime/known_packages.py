"""The packages of Mirlo's repository, by what they offer: errors about what is missing say how to install it."""

from __future__ import annotations

PACKAGES = {
    "commands": {"lsp": "mirlo-editor"},
    "frontends": {"sklearn": "mirlo-sklearn"},
    "targets": {
        "cublas": "mirlo-cublas",
        "cudnn": "mirlo-cudnn",
        "onednn": "mirlo-onednn",
        "onnx": "mirlo-onnxruntime",
        "onnxruntime": "mirlo-onnxruntime",
    },
    "loaders": {
        "cublaslt": "mirlo-cublas",
        "cudnn": "mirlo-cudnn",
        "onednn": "mirlo-onednn",
        "onnx": "mirlo-onnxruntime",
    },
}
"""The package of each name, by group of entry points without `mirlo.`; a test compares it with the packages in
`plugins`."""

COMMANDS = {"lsp": "answer an editor on standard input and output"}
"""The line of help of each command, which `mirlo --help` prints whether or not its package is installed."""


def install_command(group: str, name: str) -> str | None:
    """Return the command that installs the package which offers a name in a group, or None for others."""
    package = PACKAGES.get(group.removeprefix("mirlo."), {}).get(name)
    return package and f"pip install {package}"
