"""Public architectures with random weights: exported, compiled, and compared with ONNX Runtime."""
