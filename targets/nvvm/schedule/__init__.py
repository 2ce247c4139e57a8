"""Schedules of target `nvvm`: kernels for the matrix units of NVIDIA GPUs."""
