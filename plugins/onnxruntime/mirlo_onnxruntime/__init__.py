"""Targets `onnx` and `onnxruntime`: parts of a model as ONNX models, run by an execution provider of ONNX Runtime."""

from __future__ import annotations

from mirlo.extend.target import Target

TARGET = Target(
    name="onnx",
    help="parts of models as ONNX models, run by an ONNX Runtime execution provider",
    codegen="mirlo_onnxruntime.generator:OnnxGenerator",
)
ONNXRUNTIME = Target(
    name="onnxruntime",
    help="the same as onnx, named after the engine",
    codegen="mirlo_onnxruntime.generator:OnnxRuntimeGenerator",
)
