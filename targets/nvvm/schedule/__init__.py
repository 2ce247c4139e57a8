"""Schedules of target `nvvm`: what the matrix units of NVIDIA's GPUs are for."""
