"""Functions as TVM's users paste them, and what numpy makes of them."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(3)
A = RNG.standard_normal((8, 8)).astype(np.float32)
X = RNG.standard_normal((4, 8)).astype(np.float32)
W = RNG.standard_normal((8, 4)).astype(np.float32)
ROWS, COLS = np.indices((8, 8))
ONES = np.ones(8, np.float32)

BUFFERS = 'A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")'
LONG = 'A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")'
BLOCK = """
    for i, j in T.grid({sizes}):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = {value}
"""
HANDLES = """a: T.handle, b: T.handle):
    {symbols}
    A = T.match_buffer(a, {shape}, "float32"{more})
    B = T.match_buffer(b, {shape}, "float32")
"""


def handles(symbols: str, shape: str, sizes: str, value: str, more: str = "") -> str:
    """Return the parameters and the body of a function of handles."""
    return HANDLES.format(symbols=symbols, shape=shape, more=more) + BLOCK.format(sizes=sizes, value=value)[1:]


TWICE = "A[vi, vj] * T.float32(2)"
PRIM_FUNCS: dict[str, tuple[str, np.ndarray, np.ndarray]] = {
    "int64 sizes": (
        'A: T.Buffer((T.int64(8), T.int64(8)), "float32"), B: T.Buffer((T.int64(8), T.int64(8)), "float32")):'
        + BLOCK.format(sizes="T.int64(8), T.int64(8)", value=TWICE),
        A, A * 2,
    ),
    "a symbol": (handles("n = T.int64()", "(n, T.int64(8))", "n, T.int64(8)", TWICE), A, A * 2),
    "two symbols": (
        handles("m, n = T.int32(), T.int32()", "(m, n)", "m, n", "A[vi, vj] + T.Cast('float32', vi * n + vj)"),
        A, A + np.arange(64).reshape(8, 8),
    ),
    "a size variable": (handles("n = T.int64(is_size_var=True)", "(n, 8)", "n, 8", TWICE), A, A * 2),
    "a symbol as a parameter": (
        handles("pass", "(n, 8)", "n, 8", TWICE).replace("b: T.handle", "b: T.handle, n: T.int64"), A, A * 2,
    ),
    "strides": (
        handles("pass", "(8, 8)", "8, 8", TWICE, ", strides=[8, 1], elem_offset=0, align=64, offset_factor=1"),
        A, A * 2,
    ),
    "symbolic strides": (handles("s = T.int32()", "(8, 8)", "8, 8", TWICE, ", strides=(s, 1)"), A, A * 2),
    "a view": (
        BUFFERS + """):
    for io, jo in T.grid(2, 8):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [io, jo])
            a = T.match_buffer(A[vi * 4:vi * 4 + 4, vj], (4,), "float32", strides=("s0",), offset_factor=1)
            b = T.match_buffer(B[vi * 4:vi * 4 + 4, vj:vj + 1], (4, 1), "float32")
            for i in T.serial(4):
                b[i, 0] = a[i] * T.float32(2)
""", A, A * 2,
    ),
    "ramps": (
        LONG + """):
    for i in range(8):
        B[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(63 - i * 8, -1, 8)] * T.Broadcast(T.float32(2), 8)
""", A.reshape(-1), A.reshape(-1)[::-1] * 2,
    ),
    "slices": (
        LONG + """):
    for i in range(8):
        B[i * 8:i * 8 + 8] = A[i * 8:i * 8 + 8] + T.Broadcast(A[i], 8)
""", A.reshape(-1), A.reshape(-1) + np.repeat(A.reshape(-1)[:8], 8),
    ),
    "allocated memory": (
        BUFFERS + """):
    C_data = T.allocate([64], "float32", "global")
    C = T.decl_buffer((64,), "float32", data=C_data)
    D = T.decl_buffer((64,), "float32")
    for i, j in T.grid(8, 8):
        C[i * 8 + j] = A[i, j] + T.float32(1)
    for i in range(64):
        D[i] = C[i] * C[i]
    for i, j in T.grid(8, 8):
        B[i, j] = D[i * 8 + j]
""", A, (A + 1) ** 2,
    ),
    "nothing": (
        BUFFERS + """):
    T.evaluate(0)
    with T.attr(0, "pragma_auto_unroll_max_step", 16):
        for i, j in T.grid(8, 8):
            y = T.bind(A[i, j] * A[i, j])
            B[i, j] = y
""", A, A * A,
    ),
    "conditions": (
        BUFFERS + """):
    for i, j in T.grid(T.ceildiv(15, 2), 8):
        if T.And(T.likely(i < 8), T.Not(A[i, j] < T.float32(0))):
            B[i, j] = T.if_then_else(j < 4, A[i, j], T.float32(0.5), dtype="float32")
        else:
            B[i, j] = T.Select(T.Or(i < 1, j < 1), T.FloatImm("float32", 2), T.float32(0))
""", A, np.where(A >= 0, np.where(COLS < 4, A, 0.5), np.where((ROWS < 1) | (COLS < 1), 2, 0)),
    ),
    "infinity": (
        'A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):' + """
    for i, k in T.grid(8, 8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            vk = T.axis.reduce(8, k)
            with T.init():
                B[vi] = T.float32("-inf")
            B[vi] = T.max(B[vi], A[vi, vk])
""", A, A.max(1),
    ),
    "bits": (
        'A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "int32")):' + BLOCK.format(
            sizes="8, 8", value="T.shift_right(T.bitwise_and(T.reinterpret('int32', A[vi, vj]), T.int32(0xFF00)), 8) "
            "+ T.bitwise_xor(T.shift_left(T.Cast('int32', vi), 3), T.int32(5))",
        ), A, (A.view(np.int32) >> 8 & 255) + (ROWS << 3 ^ 5),
    ),
}  # fmt: skip
"""What stands between the parentheses of a definition and its end, the argument, and the result."""

SIGNATURE = "x: R.Tensor((4, 8), 'float32')"
DYNAMIC = "x: R.Tensor(('n', 8), dtype='float32')"
VECTORS = ", ".join(f"{name}: R.Tensor((8,), 'float32')" for name in "gbmv")
MEAN, VARIANCE = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
IMAGE = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
QUERY = RNG.standard_normal((1, 4, 2, 8)).astype(np.float32)


INDICES = np.array([2, 0, 3], np.int32)
KERNEL = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
WINDOWS = np.lib.stride_tricks.sliding_window_view(np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
CONV = np.einsum("nchwyx,ocyx->nohw", WINDOWS, KERNEL)
LAST = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))
CENTERED = IMAGE - IMAGE.mean((2, 3), keepdims=True)
NORMED = CENTERED / np.sqrt(CENTERED.var((2, 3), keepdims=True) + 1e-5)
IMAGE_TYPE, LAST_TYPE = "R.Tensor((1, 3, 8, 8), 'float32')", "R.Tensor((1, 8, 8, 3), 'float32')"
INDEX_TYPE = "R.Tensor((3,), 'int32')"


def attended(x: np.ndarray) -> np.ndarray:
    """Return causal attention of [batch, rows, heads, columns] to itself."""
    scores = np.einsum("bqhd,bkhd->bhqk", x, x) / 2
    scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -np.inf)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", raised / raised.sum(-1, keepdims=True), x)


GRAPHS: dict[str, tuple[str, str, list[np.ndarray], np.ndarray]] = {
    "a symbol": (
        DYNAMIC, "n = T.int64()\nwith R.dataflow():\n    lv: R.Tensor((n, 8), dtype='float32') = R.nn.relu(x)\n"
        "    gv: R.Tensor((n, 8), dtype='float32') = R.add(lv, lv)\n    R.output(gv)\nreturn gv",
        [X], np.maximum(X, 0) * 2,
    ),
    "a matched symbol": (
        SIGNATURE, "m = T.int64()\ny = R.match_cast(x, R.Tensor((m, 8), 'float32'))\n"
        "return R.reshape(y, R.shape([m * 2, 4]))", [X], X.reshape(8, 4),
    ),
    "shapes": (
        SIGNATURE, "a = R.reshape(x, R.shape([T.int64(2), -1]))\nb = R.flatten(a)\nc = R.reshape(b, R.shape_of(x))\n"
        "return R.expand_dims(R.squeeze(R.expand_dims(c, axis=[0, 2])), axis=0)", [X], X[None],
    ),
    "constants": (
        SIGNATURE, "a = R.zeros(R.shape([4, 8]), 'float32')\n"
        "b = R.full((4, 8), R.const(2.0, 'float32'), dtype='float32')\n"
        "c = R.broadcast_to(R.const([1.0], 'float32'), R.shape([4, 8]))\n"
        "return R.add(R.add(a, R.ones_like(x)), R.add(R.add(b, c), x))", [X], X + 4,
    ),
    "norms": (
        f"{SIGNATURE}, {VECTORS}",
        "a = R.nn.layer_norm(x, g, b, axes=[-1], epsilon=1e-5, center=True, scale=False)\n"
        "return R.add(a, R.nn.rms_norm(x, g, axes=[1]))", [X, ONES * 2, ONES, ONES, ONES],
        (X - MEAN) / np.sqrt(VARIANCE + 1e-5) + 1 + 2 * X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-5),
    ),
    "batch_norm": (
        f"{SIGNATURE}, {VECTORS}", "lv = R.nn.batch_norm(x, g, b, m, v, axis=1, epsilon=0.0)\n"
        "lv1: R.Tensor((4, 8), dtype='float32') = lv[0]\nreturn lv1",
        [X, ONES * 2, ONES, ONES * 3, ONES * 4], (X - 3) / 2 * 2 + 1,
    ),
    "products": (
        SIGNATURE + ", w: R.Tensor((4, 8), 'float32')", "a = R.matmul(x, R.permute_dims(w), out_dtype='void')\n"
        "return R.add(a, R.matmul(x, R.permute_dims(w, axes=[1, 0]), out_dtype='float32'))", [X, W.T.copy()], 2 * X @ W,
    ),
    "parts": (
        SIGNATURE + ", i: R.Tensor((3,), 'int32')", "a = R.split(x, indices_or_sections=2, axis=1)\n"
        "b = R.split(x, [2, 5], axis=-1)\nc = R.concat((a[1], a[0], b[2], b[0], b[1]), axis=1)\n"
        "return R.take(R.flip(c, axis=0), i, axis=0)", [X, np.array([2, 0, 3], np.int32)],
        np.concatenate([X[:, 4:], X[:, :4], X[:, 5:], X[:, :2], X[:, 2:5]], 1)[::-1][[2, 0, 3]],
    ),
    "numbers": (
        SIGNATURE, "a = R.clip(x, R.prim_value(0), R.prim_value(1))\nb = R.nn.leakyrelu(x, alpha=0.5)\n"
        "return R.where(R.greater(x, R.const(0.5, 'float32')), a, b)", [X],
        np.where(X > 0.5, np.clip(X, 0, 1), np.where(X > 0, X, X / 2)),
    ),
    "images": (
        "x: R.Tensor((1, 3, 8, 8), 'float32')", "a = R.nn.avg_pool2d(x, pool_size=[2, 2], strides=[2, 2], "
        "padding=[0, 0, 0, 0], ceil_mode=False, layout='NCHW')\nb = R.nn.adaptive_avg_pool2d(a, output_size=[2, 2])\n"
        "return R.add(b, R.nn.adaptive_avg_pool2d(x, (1, 1)))", [IMAGE],
        IMAGE.reshape(1, 3, 2, 4, 2, 4).mean((3, 5)) + IMAGE.mean((2, 3), keepdims=True),
    ),
    "reductions": (
        SIGNATURE, "a = R.variance(x, axis=[1], keepdims=True)\nb = R.std(x, axis=-1, keepdims=True)\n"
        "return R.concat([a, b, R.astype(R.argmax(x, axis=1, keepdims=True), 'float32')], axis=1)", [X],
        np.concatenate([VARIANCE, np.sqrt(VARIANCE), X.argmax(1, keepdims=True)], 1),
    ),
    "repeated": (
        SIGNATURE, "return R.repeat(R.tile(R.triu(x), (2, 1, 2)), 3, axis=1)", [X],
        np.repeat(np.tile(np.triu(X), (2, 1, 2)), 3, 1),
    ),
    "attention": (
        "q: R.Tensor((1, 4, 2, 8), 'float32')",
        "return R.nn.attention(q, q, q, scale=T.FloatImm('float32', 0.5), causal_mask='TopLeft')", [QUERY],
        attended(QUERY),
    ),
    "positions of all": (
        SIGNATURE, "a = R.astype(R.argmax(x), 'float32')\nb = R.astype(R.argmin(x, keepdims=True), 'float32')\n"
        "return R.add(R.add(a, b), R.sum(R.mean(x, [-1], True)))", [X],
        (X.argmax() + X.argmin() + X.mean(-1).sum()).reshape(1, 1),
    ),
    "running sums": (
        SIGNATURE, "a = R.reshape(R.cumsum(x), (4, 8))\nreturn R.add(a, R.cumprod(x, axis=1, dtype='float32'))", [X],
        X.cumsum().reshape(4, 8) + X.cumprod(1),
    ),
    "convolutions": (
        f"x: {LAST_TYPE}, w: R.Tensor((4, 3, 3, 3), 'float32')",
        "a = R.nn.conv2d(x, w, strides=1, padding=1, data_layout='NHWC', kernel_layout='OIHW')\n"
        "b = R.nn.conv2d(R.permute_dims(x, [0, 3, 1, 2]), w, strides=[1, 1], padding=[1, 1, 1, 1], "
        "data_layout='NCHW', out_layout='NCHW', out_dtype='void')\n"
        "return R.add(R.permute_dims(a, [0, 3, 1, 2]), b)", [LAST, KERNEL], CONV * 2,
    ),
    "a transposed convolution": (
        f"x: {IMAGE_TYPE}, w: R.Tensor((3, 4, 1, 1), 'float32')",
        "return R.nn.conv2d_transpose(x, w, strides=2, output_padding=1)",
        [IMAGE, np.ascontiguousarray(KERNEL[:, :, :1, :1].transpose(1, 0, 2, 3))],
        np.kron(np.einsum("nchw,oc->nohw", IMAGE, KERNEL[:, :, 0, 0]), np.array([[1, 0], [0, 0]], np.float32)),
    ),
    "pools": (
        f"x: {LAST_TYPE}", "a = R.nn.max_pool2d(x, (2, 2), (2, 2), layout='NHWC')\n"
        "return R.add(a, R.nn.avg_pool2d(x, 2, 2, layout='NHWC'))", [LAST],
        LAST.reshape(1, 4, 2, 4, 2, 3).max((2, 4)) + LAST.reshape(1, 4, 2, 4, 2, 3).mean((2, 4)),
    ),
    "norms of images": (
        f"x: {IMAGE_TYPE}, g: R.Tensor((3,), 'float32')",
        "a = R.nn.group_norm(x, g, g, num_groups=3, channel_axis=1, axes=[2, 3], epsilon=1e-5)\n"
        "return R.add(a, R.nn.instance_norm(x, g, g, axes=[2, 3]))", [IMAGE, ONES[:3] * 2], (NORMED * 2 + 2) * 2,
    ),
    "resized": (
        f"x: {IMAGE_TYPE}", "a = R.image.resize2d(x, (16, 16), layout='NCHW', method='nearest_neighbor', "
        "coordinate_transformation_mode='asymmetric', rounding_method='floor')\n"
        "return R.nn.pad(a, [0, 0, 0, 0, 1, 1, 2, 0], pad_value=1.0)", [IMAGE],
        np.pad(IMAGE.repeat(2, 2).repeat(2, 3), ((0, 0), (0, 0), (1, 1), (2, 0)), constant_values=1),
    ),
    "shuffled pixels": (
        "x: R.Tensor((1, 4, 2, 2), 'float32')", "return R.nn.pixel_shuffle(x, 2)",
        [IMAGE[:, :1, :4, :4].reshape(1, 4, 2, 2)],
        IMAGE[:, :1, :4, :4].reshape(1, 2, 2, 2, 2).transpose(0, 3, 1, 4, 2).reshape(1, 1, 4, 4),
    ),
    "activations": (
        f"{SIGNATURE}, a: R.Tensor((8,), 'float32')", "b = R.add(R.nn.relu6(x), R.nn.prelu(x, a, axis=1))\n"
        "c = R.nn.dropout(R.nn.gelu_tanh(x), rate=0.5)\nreturn R.add(R.add(b, c[0]), R.nn.softplus(x, beta=2.0))",
        [X, ONES / 4], np.clip(X, 0, 6) + np.where(X > 0, X, X / 4) + np.log1p(np.exp(2 * X)) / 2
        + X / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3))),
    ),
    "slices of tensors": (
        SIGNATURE, "a = R.strided_slice(x, (R.prim_value(0),), (R.prim_value(1),), (R.prim_value(3),))\n"
        "return R.add(a, R.strided_slice(x, axes=[0], begin=[-2], end=[100], strides=[1], assume_inbound=False))", [X],
        X[1:3] + X[2:],
    ),
    "sorted": (
        SIGNATURE, "v = R.topk(x, k=3, axis=-1, ret_type='both', largest=True, dtype='int64')\n"
        "s = R.topk(x, 3, ret_type='indices')\na = R.argsort(x, axis=1)\n"
        "return R.add(v[0], R.astype(R.add(s, R.strided_slice(a, [1], [0], [3])), 'float32'))", [X],
        -np.sort(-X, 1)[:, :3] + np.argsort(-X, 1)[:, :3] + np.argsort(X, 1)[:, :3],
    ),
    "indices": (
        f"{SIGNATURE}, i: {INDEX_TYPE}", "a = R.one_hot(i, R.prim_value(1.0), R.prim_value(0.0), depth=8, axis=-1)\n"
        "b = R.add(a, R.index_tensor(x, (i,)))\nc = R.scatter_elements(x, R.const([[1] * 8], 'int64'), "
        "R.full((1, 8), R.const(2.0, 'float32')), axis=0, reduction='update')\n"
        "return R.concat([b, c, R.masked_fill(x, R.greater(x, R.const(0.0, 'float32')), 5.0)])", [X, INDICES],
        np.concatenate([np.eye(8)[INDICES] + X[INDICES], X[:1], ONES[None] * 2, X[2:], np.where(X > 0, 5, X)]),
    ),
    "contractions": (
        f"{SIGNATURE}, w: R.Tensor((8, 4), 'float32')", "a = R.einsum((x, w), subscripts='ij,jk->ik')\n"
        "b = R.linear(x, R.permute_dims(w), R.const([1, 1, 1, 1], 'float32'))\n"
        "return R.ewise_fma(a, R.collapse_sum_to(b, (1, 4)), b)", [X, W],
        (X @ W) * (X @ W + 1).sum(0, keepdims=True) + X @ W + 1,
    ),
    "grids": (
        f"{SIGNATURE}, i: {INDEX_TYPE}", "j = R.astype(i, 'float32')\n"
        "g = R.meshgrid((j, R.arange(0, 8, 1, dtype='float32')))\n"
        "o = R.outer(j, R.arange(8, dtype='float32'))\nb = R.bucketize(x, R.const([-1.0, 0.0, 1.0], 'float32'))\n"
        "return R.concat([R.add(R.add(g[0], g[1]), o), R.astype(b, 'float32'), R.full_like(x, R.const(3, 'float32'))])",
        [X, INDICES], np.concatenate([
            INDICES[:, None] + np.arange(8) + np.outer(INDICES, np.arange(8)), np.searchsorted([-1, 0, 1], X),
            np.full_like(X, 3),
        ]),
    ),
    "remainders": (
        SIGNATURE, "t = R.const(0.7, 'float32')\nreturn R.add(R.mod(x, t), R.multiply(R.floor_mod(x, t), t))", [X],
        np.fmod(X, np.float32(0.7)) + np.mod(X, np.float32(0.7)) * 0.7,
    ),
    "codes": (
        SIGNATURE, "s, z = R.const(0.1, 'float32'), R.const(3, 'int8')\n"
        "q = R.quantize(x, s, z, axis=0, out_dtype='int8')\n"
        "return R.dequantize(q, s, z, axis=-1, out_dtype='float32')", [X], np.rint(X / np.float32(0.1)) * 0.1,
    ),
}  # fmt: skip
"""Parameters, statements, arguments and the result."""

REFUSED = {
    "R.concat(x)": "R.concat: an argument has another form than TVM's, found tensors a tensor",
    "R.nn.adaptive_avg_pool2d(x, output_size=(0, 1))": "has another form than TVM's, .*, output_size a tuple of 2",
    "R.print(x, format='{}')": "R.print has no meaning here: a compiled graph prints nothing: return the tensor",
    "R.assert_op(R.const(True), x)": "R.assert_op has no meaning here: .*: compare before the call",
    "R.call_tir_inplace(f, x)": "R.call_tir_inplace has no meaning here: call_tir with an output",
    "R.multiply(x, metadata['relax.expr.Constant'][0])": r"unknown name 'metadata', .*: write R.const\(array\)",
    "R.split(x, 2, 1, 3)": "R.split: too many .*; it takes x, indices_or_sections, axis",
    "R.squeeze(x, axis=2)": "R.squeeze: an axis is from -2 to 1, found 2",
    "R.nn.layer_norm(x, x, x, axes=[0])": r"R.nn.layer_norm: a norm is computed over the last axes, found axes=\(0,\)",
    "R.nn.batch_norm(x, x, x, x, x, training=True)": "R.nn.batch_norm: a compiled model is not trained",
    "R.match_cast(x, R.Tensor((4, 9), 'float32'))": r"R.match_cast: f32\[4, 8\] is not of the type f32\[4, 9\]: 9 is 8",
    "R.nn.conv2d(x, x, out_layout='NHWC')": "R.conv2d: permute the result, .* NCHW; found NHWC",
    "R.topk(x, 3, ret_type='mask')": "R.topk: ret_type is 'both', 'values' or 'indices', found 'mask'",
    "R.unique(x)": "R.unique has no meaning here: .*: import an ONNX model",
    "R.dynamic_strided_slice(x, x, x, x)": "R.dynamic_strided_slice has no meaning here: R.strided_slice takes",
    "R.nn.pad(x, [1, 1])": "R.nn.pad: a pair for each of 2 dims",
    "R.nn.attention(x, x, x, window_size=2)": "R.nn.attention: found .*window_size=2: give a bias",
}
"""Expressions of graphs, and why they are refused."""
REFUSED_STATEMENTS = {
    'C = T.match_buffer(A, (8, 8), "float32", strides=(16, 1))': "T.match_buffer has no meaning here: .*contiguous",
    "B[0, 0] = T.truncdiv(3, 2)": "T.truncdiv has no meaning here: // rounds down",
    'T.tvm_storage_sync("shared")': "T.tvm_storage_sync has no meaning here: .*",
    "assert A[0, 0] > 0": "statement 'assert' has no meaning",
}
