"""The target `systolic`: int8 convolutions and products of matrices on an NPU in SystemVerilog."""

from mirlo.extend.target import Target

TARGET = Target("systolic", "int8 layers on the NPU of this package", codegen="mirlo_systolic.generator:Systolic")
