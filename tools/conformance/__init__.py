"""The conformance kit: what every operator and intrinsic means in numpy, and whether a target computes it."""
