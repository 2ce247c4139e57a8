"""Quantization of ONNX models: weights of a few bits, and int8 with ranges that data calibrate."""
