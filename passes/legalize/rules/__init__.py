"""Default legalization rules: one file per family of operators."""

INDEX = """
attention: relax.attention relax.attention_with_scales relax.attention_with_sinks relax.cache_write
    relax.paged_attention relax.rotary_embedding
cast: relax.bitcast relax.cast
collectives: relax.all_gather relax.all_reduce relax.all_to_all relax.collective_permute relax.from_parts relax.rank_id
    relax.reduce_scatter relax.to_parts
conv: relax.conv
conv_gradient: relax.conv_weight_gradient
conv_transpose: relax.conv_transpose
create: relax.arange relax.dft_matrix relax.eye relax.full relax.tri
cumulative: relax.cumprod relax.cumsum
dynamic: relax.dims_tensor relax.nonzero relax.pad_at relax.slice_at relax.slice_bounds relax.slice_dims
    relax.spread_axes relax.steps
dynamic_resize: relax.resize relax.resize_at
einsum: relax.einsum
elementwise: scalar
image: relax.grid_sample relax.resize
index: relax.gather relax.gather_elements relax.gather_nd relax.one_hot relax.scatter_elements relax.scatter_nd
linear_algebra: relax.cholesky relax.det relax.inverse relax.lu relax.triangular_solve
matmul: relax.matmul
normalize: relax.batch_norm relax.group_norm relax.instance_norm relax.layer_norm relax.lp_normalize relax.lrn
    relax.rms_norm
pool: relax.avg_pool relax.lp_pool relax.max_pool relax.max_pool_with_indices
quantize: relax.dequantize relax.quantize relax.quantize_rows relax.unpack
random: relax.random_normal relax.random_uniform
reduce: reduction relax.argmax relax.argmin relax.reduce_log_sum_exp
shape: relax.depth_to_space relax.expand relax.expand_dims relax.permute relax.reverse relax.shape_of
    relax.space_to_depth relax.squeeze relax.tile
slice: relax.concat relax.pad relax.split relax.stack relax.strided_slice
softmax: relax.hardmax relax.log_softmax relax.softmax
sort: relax.argsort relax.sort relax.topk
sort_rows: relax.argsort_rows
suppression: relax.non_max_suppression
text: relax.count_ngrams
tree: relax.find_sorted relax.tree_ensemble
vision: relax.col2im relax.deform_conv relax.max_roi_pool relax.roi_align
"""
"""The modules by the operators that the rules of each file are for; * for a trait."""
