"""Files that are commonly taken for ONNX models: what they are, by first bytes or names, and how to compile them."""

from __future__ import annotations

from pathlib import PurePath

PICKLE = (
    "a Python pickle, which may run any code and is not opened: load it where you trust it, "
    "and compile the object in Python: mirlo.compile(model, ...)"
)
CHECKPOINT = (
    "a PyTorch checkpoint, which has weights and no graph: load it into its module in Python, "
    "and compile that: mirlo.compile(module, args=(example,))"
)
KERAS = (
    "a Keras model: load it in Python with KERAS_BACKEND=jax and compile it there: "
    "mirlo.compile(model); or convert it with tf2onnx"
)
TFLITE = "a TensorFlow Lite model: convert it with 'python -m tf2onnx.convert --tflite FILE --output model.onnx'"
GGUF = "a GGUF file of a language model, which 'mirlo generate' runs: mirlo generate FILE PROMPT"
SAFETENSORS = (
    "a safetensors file, which has weights and no graph: run the folder of a language model with 'mirlo generate "
    "FOLDER'; load other weights into a module of PyTorch, and compile that: mirlo.compile(module, args=(example,))"
)
SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer: run 'git lfs pull' to get the model itself"),
    (0, b"\x89HDF", KERAS),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"<!DOCTYPE", "a web page: the download went wrong"),
    (0, b"<html", "a web page: the download went wrong"),
    (0, b"\x93MIRLO", "a file that Mirlo wrote: a compiled model is run, not imported"),
    (0, b"ML\xefR", "MLIR bytecode"),
    (0, b"GGUF", GGUF),
    (4, b"TFL3", TFLITE),
    (8, b'{"', SAFETENSORS),
    *((0, b"\x80" + bytes([protocol]), PICKLE) for protocol in range(2, 6)),
)
"""Where a signature is, its bytes, and what has it."""
SIGNATURE_BYTES = 32
"""Bytes of a file that these need."""
ARCHIVE = b"PK\x03\x04"
SUFFIXES = {
    ".pt2": "an exported PyTorch program: load and compile it in Python: mirlo.compile(torch.export.load('FILE'))",
    ".pt": CHECKPOINT, ".pth": CHECKPOINT, ".ckpt": CHECKPOINT, ".bin": CHECKPOINT,
    ".keras": KERAS, ".h5": KERAS, ".hdf5": KERAS,
    ".pkl": PICKLE, ".pickle": PICKLE, ".joblib": PICKLE,
    ".tflite": TFLITE,
    ".gguf": GGUF, ".safetensors": SAFETENSORS,
    ".pb": "a TensorFlow graph: convert its folder, python -m tf2onnx.convert --saved-model FOLDER --output model.onnx",
    ".mlmodel": "a Core ML model: export the model it was converted from as ONNX",
    ".xml": "perhaps an OpenVINO model: export the model it was converted from as ONNX",
    ".ort": "a model in ONNX Runtime's own format: use the ONNX file that it was converted from",
    ".json": "a JSON file; a model of XGBoost is loaded in Python, and compiled there: mirlo.compile(model)",
    ".txt": "a text; a model of LightGBM is loaded in Python, and compiled there: mirlo.compile(model)",
    ".npz": "an archive of NumPy arrays: the arrays of inputs are given with --input NAME=FILE.npy",
}  # fmt: skip


def kind_by_content(start: bytes, path: PurePath | None) -> str | None:
    """Return what a file is by its first bytes, and what to do with it; None for what may be an ONNX model."""
    if start.startswith(ARCHIVE):
        return (
            kind_by_name(path) or "a zip archive, perhaps a PyTorch checkpoint: export the model with torch.onnx.export"
        )
    return next((text for at, signature, text in SIGNATURES if start[at:].startswith(signature)), None)


def kind_by_name(path: PurePath | None) -> str | None:
    """Return what a file is by its name; the caller knows that it is no ONNX model."""
    return None if path is None else SUFFIXES.get(path.suffix.lower(), "").replace("FILE", path.name) or None
