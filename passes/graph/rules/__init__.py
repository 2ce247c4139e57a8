"""Rules of `simplify` and `convert-layout`: one file per topic."""

INDEX = """
activations: relax.divide relax.multiply relax.reciprocal
algebra: neutral relax.cast relax.divide relax.power relax.where
attention: relax.attention relax.matmul
conv: relax.conv
conv_transpose: relax.conv_transpose
gelu: relax.multiply
layout: data-layout relax.conv relax.conv_transpose relax.conv_weight_gradient relax.permute
layout_sink: axes elementwise relax.dequantize relax.quantize relax.reshape
matmul: relax.add relax.matmul relax.permute
normalize: relax.add relax.divide relax.multiply
quantized: relax.conv relax.matmul relax.multiply
reductions: relax.divide relax.maximum relax.minimum relax.multiply relax.reshape relax.subtract
requantize: relax.quantize
rotary: relax.add
round_trip: relax.quantize
shapes: relax.concat relax.expand relax.expand_dims relax.pad relax.permute relax.reshape relax.split relax.squeeze
    relax.strided_slice relax.tile
tables: relax.gather subset
unrolled: relax.concat relax.stack
views: elementwise last-axis
weights: relax.add relax.batch_norm relax.divide relax.multiply relax.subtract
"""
"""The modules by the operators that the rules of each file rewrite."""
