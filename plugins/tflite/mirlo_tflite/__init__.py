"""Front end for TOSA, Arm's set of tensor operators: MLIR, TOSA's flatbuffers, and through it TensorFlow Lite."""
