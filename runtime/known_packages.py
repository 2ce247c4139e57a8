"""The packages of Mirlo's repository by the names that they offer, for errors that say how to install them."""

from __future__ import annotations

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
