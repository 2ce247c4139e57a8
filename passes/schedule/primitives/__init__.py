"""User schedules: TensorIR's schedule primitives on the loops of a prim function."""
