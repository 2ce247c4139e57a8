"""`mirlo.InferenceSession`: compiled models behind the interface of ONNX Runtime's Python package."""
