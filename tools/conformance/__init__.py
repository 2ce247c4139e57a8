"""The conformance kit: the meaning of every operator and intrinsic in numpy, and whether a target computes it."""
