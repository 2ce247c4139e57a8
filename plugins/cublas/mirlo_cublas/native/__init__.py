"""The library cuBLASLt in this process: plans become calls of it, on tensors in GPU memory."""
