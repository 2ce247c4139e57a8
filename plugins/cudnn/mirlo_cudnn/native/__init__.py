"""The library cuDNN in this process: it executes plans on tensors in GPU memory."""
