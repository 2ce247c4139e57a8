"""Operations that store elements: the position of the buffer among their operands."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.walk import find_named
from mirlo.dialects.tir.buffers import STORED_TO

PROGRAM = """
func.func @stores(%to: memref<64xf32>, %x: f32, %many: vector<8xf32>, %mask: vector<8xi1>, %places: vector<8xindex>) {
  %i = arith.constant 3 : index
  memref.store %x, %to[%i] : memref<64xf32>
  vector.store %many, %to[%i] : memref<64xf32>, vector<8xf32>
  vector.maskedstore %to[%i], %mask, %many : memref<64xf32>, vector<8xi1>, vector<8xf32>
  vector.scatter %to[%i] [%places], %mask, %many : memref<64xf32>, vector<8xindex>, vector<8xi1>, vector<8xf32>
  return
}
"""


def test_the_operand_is_the_buffer() -> None:
    with make_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(PROGRAM)
        stores = find_named(module, STORED_TO)
        assert [op.name for op in stores] == list(STORED_TO)
        for op in stores:
            buffer, index = list(op.operands)[STORED_TO[op.name] :][:2]
            assert isinstance(buffer.type, ir.MemRefType) and isinstance(index.type, ir.IndexType)
