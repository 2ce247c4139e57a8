"""Language models with weights of a few bits, against ONNX Runtime."""
