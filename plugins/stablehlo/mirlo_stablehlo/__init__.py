"""The front end for StableHLO, the form in which JAX, and TensorFlow through its converters, hand programs over."""
