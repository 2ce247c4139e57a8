"""How fast single kernels are, against the machine and against ONNX Runtime."""
