"""Convolutions with 3x3 windows by Winograd's algorithm: fewer multiplications, between transforms of tiles."""
