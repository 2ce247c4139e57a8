"""Schedules by hand: TensorIR's words on the loops of a prim function."""
