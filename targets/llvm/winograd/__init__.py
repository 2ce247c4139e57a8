"""Winograd convolution with 3x3 windows: fewer multiplications, between transforms of tiles."""
