"""The front end for StableHLO, the exchange format of JAX, and of TensorFlow through its converters."""
