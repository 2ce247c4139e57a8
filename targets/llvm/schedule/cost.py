"""The cost model's constants of the schedules of target `llvm`, each with its unit and the reason of its value.

Properties of one processor are fields of `Machine`. A docstring names the measurement where there was one; the other
values were chosen by hand, and `python -m benchmarks.kernels` checks them. A constant changes many kernels: compare all
of them before you keep it (`docs/contraction.md`, "Change the choice"). Choices of callers and the tuner are in
`targets/llvm/choices.py`.
"""

from __future__ import annotations

# Machines: what holds for the processors that presets describe, and is no field of `Machine`
LINE_BYTES = 64
"""Bytes of a cache line, on all processors with a preset."""
LINES_PER_FETCH = 2
"""Cache lines that hardware fetches together."""
SHUFFLE_LANE_BYTES = 16
"""Bytes of the parts of a wider vector within which shuffles move elements; they also move whole parts."""
STRIPE_BYTES_PER_CYCLE = 12.0
"""Bytes per cycle of results, and of operands of the epilogue, that exceed the L2 cache and are written in stripes, a
panel of columns after the other: on a Xeon with 2 MB of L2 the expansion of MobileNetV2 to 96 channels takes 0.62 of
the time in blocks of rows, ResNet-50's to 256 channels 0.74."""
COPY_BYTES_PER_CYCLE = 16.0
"""Bytes per cycle of packing a panel of columns."""

# Register tiles: the model that chooses rows and vectors (`contraction/tiles.py`, `costs.py`)
VECTOR_COUNTS = (1, 2, 3, 4, 6, 8, 16)
"""Vectors of columns of the tiles that are considered; all counts up to eight if the columns fill no more."""
MAX_MEASURED_TILES = 24
"""Most tiles that are measured for one kernel; the machine model orders them by expected time."""
K_SPLITS = (2, 3, 4)
"""Equal parts of K that are measured, besides blocks of usual extents."""
MAX_DOT_ROWS = 64
"""Most rows for which dot products are worth a measurement."""
EQUAL_TILES = 0.01
"""Part of the time by which tiles may differ and be taken as equal: the first one stays, which has most rows."""
TILE_OVERHEAD = 30.0
"""Cycles to begin and end a tile: addresses, loop control, filling the pipeline."""
OVERLAPPED_STORES = 8
"""Accumulators whose stores overlap the next tile, if the output exceeds the L2 cache."""
STORE_CYCLES = 3.0
"""Cycles of each store beyond these: measured for 1x1 convolutions of 16 to 64 channels, which thus take smaller
tiles."""
WORD_TEMPORARIES = 9
"""Registers beside accumulators of single int8 that `vpmaddwd` multiplies: LLVM adds products of adjacent taps to each
other first, and keeps the rows that they share. With fewer, tiles of 4 rows and 2 vectors of depthwise convolutions
spill up to 14 times in 24 products on AVX2; MobileNetV2 takes 0.98 of the time with 5 rows of one vector, or 2 of 2."""
LATENCY_SLACK = 1.25
"""Factor on the products in flight that the latency demands: loads are late now and then."""
ISSUED_PER_LOAD = 2
"""Instructions of a load in a k-step where addresses are computed apart, as by V8. With it WebAssembly has tiles of 3
rows and 3 vectors: the encoder of Whisper takes 0.96 of the time of 6 rows and 2 vectors in V8 14.6, 0.91 in V8 11.3,
MobileNetV2 0.99 and 0.95."""
BEYOND_L2_FACTOR = 3
"""Multiple of the L2 cache from which on an operand counts as coming from beyond it."""
BEYOND_L2_VECTORS = 4
"""Vectors of a tile whose rows come from beyond the L2 cache: runs of 256 bytes arrive in as little as half of the
time."""
L2_RESIDENT_SHARE = 0.75
"""Part of the L2 cache that an operand may fill and still be there when it is read again."""
L1_RESIDENT_SHARE = 0.75
"""Part of the ways of the L1 cache that lines of pixels may fill and still be there for the next panel: rows, results
and weights begin anywhere. On a Zen 3 with 8 ways, lines of int8 that fill 7 (112x112 pixels of 96 channels, stride 2)
do not stay: tiles of one vector take 1.75 of the time of two. Where lines fill 4 they take 0.75 to 0.95 of it."""
MIN_TILE_ROWS = 6
"""Rows from which on an axis is worth a tile, however long other axes are."""
OPEN_ROWS = 56
"""Fewest rows that a tile is chosen for if their number is dynamic."""
SHORT_K = 64
"""Largest K for which writing the results takes a large part of the time."""
POURED_L2_PARTS = 4
"""Part of the L2 cache from which on results of products with such a K count as written beyond it: loads of the next
tile overlap the stores of a small one. With 2 MB of L2, 16 columns of 0.8 MB take 0.83 of the time in tiles of 8 rows
beside 30, Winograd's products of 64 channels 0.92 in tiles of 6 rows beside 14."""

# Contractions: order of loops, packing, code size
ROW_BLOCKS = (16, 64, 128)
"""Rows of a block of which all panels are computed before the next one, rounded up to tiles: with fewer than 16 rows
reading panels from the L2 cache takes as long as the products."""
EQUAL_ORDERS = 1.015
"""Times of orders that differ by less are taken as equal."""
DEPTH_BLOCKS = (512, 1024)
"""Extents of blocks of K, outside of which rows and panels stay in the L2 cache."""
MIN_ORDER_GAIN = 0.02
"""Least part of the time that an order must be expected to save over panels outermost."""
PACK_FROM_ROWS = 6
"""Rows from which on packing the column operand costs less than reading it with a long stride."""
MIN_ROWS_TO_PACK = 4
"""Rows from which on packing columns in each call pays for instructions that sum up several products."""
MIN_ROWS_TO_EXTEND = 24
"""Rows from which on panels of constant int8 are extended to int16 for `vpmaddwd` in a copy that stays in the L1 or L2
cache: extending a vector takes an instruction in each k-step of a tile, and in a copy three for all tiles."""
MOST_TILES_THAT_WIDEN = 10
"""Most tiles along the rows of which each widens columns of 16 bits where it loads them. Products of 768 x 768 of bf16
take so 0.41 of the time of a copy of each panel with 8 rows, 0.78 with 28, on AVX-512 0.92 with 64 and 1.02 with 128,
on AVX2 1.01 with 64 and 1.07 with 128."""
DOT_BELOW_ROWS = 16
"""Rows up to which dot products along K cost less than transposing the column operand."""
EDGE_TILES = 4
"""Most tiles at edges, each of which is a copy of the code; with more, the rows are padded in a copy."""
UNROLLED_STEPS = 4
"""Most k-steps of an iteration along K: with as many, one instruction of 20 controls the loop or prefetches."""
UNROLL_TAPS = 16
"""Longest inner reduction loops that are unrolled if their loads overlap (depthwise convolutions)."""
MIN_K_BLOCK = 64
"""Smallest extent of a block of K: accumulators are loaded and stored once for each block."""
LEAD_BYTES = 4096
"""Prefetch distance in bytes for a panel that one tile reads."""
PREFETCHED_IN_BLOCKS = 4
"""Multiple of the L1 cache from which on packed weights are prefetched in blocks of rows, which find them in the L2
cache from the second block on. With an L1 cache of 48 KiB, products of ResNet-50 with weights of 256 KiB and more take
0.9 of the time, those with 64 KiB 1.07."""
PREFETCHED_WHILE_COMPUTING = 4
"""Factor on the rate at which panels of weights arrive that are prefetched while tiles compute, beside that of rows
that another core wrote: two threads are faster with a block of rows each where weights take up to four times the
rows."""
RELOADED_WINDOWS = 1.5
"""Time of a depthwise convolution whose rows are outside of panels where input and output fit the L2 cache, as a
multiple of that with panels outside: lines leave the L1 cache before the next row of windows reads them."""
MAX_IMBALANCE = 1.05
"""Lines of the thread with most of a depthwise convolution, beside its share, up to which threads divide lines:
products around it then divide their rows, too, and no thread reads what another one wrote. With 7 lines they divide
channels."""
PANELS_TO_SHARE = 8
"""Panels from which on threads divide the panels; with fewer, they divide the rows of each."""
COPY_VECTORS = 4
"""Vectors per iteration of a copy loop."""
MIN_K_TO_PREFETCH = 16
"""Smallest K that takes long enough for prefetched operands of the epilogue to arrive."""
ROLLED_FROM = 200
"""Operations of an epilogue, over all vectors of a tile, above which it is emitted as a loop over the tile's rows.

Its code is what LLVM's time goes into: SiLU on 28 vectors is three quarters of a convolution's. The loop is as fast
(0.97 to 1.02 of the time) where it computes much more than it loads and stores."""
ROLLED_FROM_IF_DEEP = 100
"""The same for tiles that sum `MIN_DEEP` products and more: what the loop costs beside unrolled code is small then."""
MIN_DEEP = 64
"""Products per element: with 27, a loop over 100 operations makes a kernel 7 % slower, with 64 no slower."""
MAX_UNROLLED_IN_REST = 40
"""Operations of an epilogue, over all vectors of the tiles for a rest of rows or columns, above which it is a loop, if
they sum `MIN_DEEP` products: they are a small part of a kernel's time, and with several sizes most of its code."""
MIN_DEPTH_TO_HOLD = 256
"""Products per element from which on these tiles may store and load accumulators for a short epilogue, too: a single
row of three vectors loses ten cycles of 400."""
LONG_INTRINSICS = {
    "cos": 50, "sin": 50, "tan": 50, "fmod": 40, "remainder": 50, "pow": 70, "erfinv": 40, "i0": 35, "i0e": 35,
    "i1": 35, "i1e": 35, "j0": 120, "j1": 120, "digamma": 110, "lgamma": 140, "tgamma": 200,
}  # fmt: skip
"""Operations of intrinsics with much more code than exp, which counts as 12: about half of those that they expand to.

On f32, exp expands to 25, erf to 21, sin to 98 with the reduction of large angles, pow to 131, lgamma to 253."""
REST_ROWS = (9, 7, 5, 4, 3, 2, 1)
"""Rows of the tiles for the rest that whole tiles leave: each is a copy of the code."""
REST_ROWS_IN_LOOPS = (7, 5, 3, 2, 1)
"""Rows of these where further loops go over the rows, as in convolutions: LLVM takes half a second for a kernel with
all of `REST_ROWS`, and the rest is small beside whole tiles."""
MIN_UNROLLED = 4
"""Fewest multiply-adds with a column, without a loop along K, that are worth memory for its accumulators."""
MAX_UNROLLED = 64
"""Most of them in code without a loop along K: 4 rows of 256 elements of f32 in AVX-512."""

# Attention in blocks of rows
ROWS_TO_PACK_FOR = 128
"""Rows of a block from which on packing all keys and values for it is a small part of its products. On a Zen 3 heads of
64 with 4,096 keys take half of the time of blocks of 6 rows, with 1,500 keys 0.78 of that of 18; 24 rows take 1.15 to
1.25 of the time of 96, 384 rows 0.91 to 0.98."""
MAX_SCORES_L2 = 4
"""Most scores of such a block, in sizes of the L2 cache. They are written once and read twice from the first byte to
the last, which the L3 cache serves fast enough; more would take memory of each thread."""
MIN_ROW_BLOCKS = 8
"""Fewest blocks if threads can divide nothing else."""
MIN_TILES_PER_BLOCK = 4
"""Fewest row tiles of a block with dynamic sizes."""
MIN_MASKED_ROWS = 32
"""Fewest rows of a block that is shrunk to skip more masked columns: with fewer rows packing dominates."""

# Loops over elements, rows and windows
F32_BYTES = 4
"""Bytes of the elements whose lanes are measured: half of a vector, and two."""
INTRINSIC_OPERATIONS = 12
"""The cost of an intrinsic, in plain operations."""
MAX_UNROLLED_WINDOW = 9
"""Most elements of a window that is unrolled."""
WINDOW_RUN_BYTES = 256
"""Bytes that an unrolled window reads of each element, if its loads limit it: with AVX2 a maximum over 3x3 pixels of 64
channels takes 0.83 of the time that it takes with 128."""
PASS_RUN_BYTES = 512
"""Bytes that a pass of a reduction over outer dims reads of each element: on a Zen 3 means over pixels take 0.6 to
1.07 of the time with runs of 448 or 512 bytes in place of 256."""
WHOLE_PASS_REGISTERS = 2
"""Multiple of the vector registers up to which one pass reduces all elements of the output, with AVX2: accumulators
beyond the registers take a load and a store each, while two passes read each pixel in two runs. On a Zen 3 means over
28x28 and 56x56 pixels of 144 channels take 0.6 to 0.76 of two passes, those of 240 channels 0.8. More than one pass of
this many accumulators do not pay: with 480 channels two take 1.07 to 1.2 of four."""
PLAIN_REDUCTION = 3
"""Values of a body that adds an element to an accumulator: the element may be an operand in memory."""
LOAD_BOUND_OPERATIONS = 12
"""Most operations of a body that is limited by its loads."""
MAX_LANE_STRIDE = 4
"""Largest stride from lane to lane; with larger ones operands are gathered, and vectors do not pay."""
MIN_WINDOW_OUTPUTS = 4
"""Fewest elements of the innermost loop of the output for which vectors pay."""
MAX_SUBSPACES = 12
"""Most parts of a space: more are more code than they save."""

# Transposes and copies in tiles
MAX_TRANSPOSED_ROWS = 16
"""Rows of the largest tile, and its columns unless its elements are low-precision."""
MIN_TILES_TO_ALIGN = 32
"""Tiles along the operand's unit stride from which on one extra tile, for alignment, is negligible."""
MAX_PARTIAL_WORK = 1.2
"""Most work of wide tiles, as a multiple of that of narrower ones, that partial tiles may cost."""
CLOSE_TO_L2 = 2.5
"""Multiple of the L2 cache up to which data counts as close."""
MAX_UNROLLED_OPERATIONS = 40
"""Operations of a body up to which it is unrolled for every row of a tile."""
TRANSPOSE_ALIGNMENT = 16
"""Elements: cuts of a loop along which tiles are transposed are at multiples of this, so that no tile is in two
parts."""
MAX_CROWDED_SETS = 2
"""Cache sets up to which the lines of one column of rows conflict."""
LOW_TILES = 8
"""Tiles of few rows that follow each other."""
MAX_INTERLEAVED = 4
"""Most channels whose planes are interleaved in registers."""
INTERLEAVED_VECTORS = 4
"""Vectors of pixels computed at a time, if the body is light."""
INTERLEAVED_BLOCK = 32
"""Vectors of a block if the data is in the L2 cache and a vector is a cache line: loads overlap. On a Zen 3, whose
vectors are half of a line, such blocks take 1.4 times as long as `INTERLEAVED_VECTORS` for three colours of 224x224."""
INTERLEAVED_LOAD_DISTANCE = 4
"""Distance of consecutive loads in a block, in vectors: adjacent lines are not requested back to back."""
RUN_BLOCK_VECTORS = 128
"""Most vectors of a block: more are more code, fewer are slower."""
RUNS_PER_BLOCK = 4
"""Adjacent runs of the operand in a block; they are short, or there would be too many vectors."""
SHORT_RUN_VECTORS = 2
"""Vectors of runs that are copied in blocks from any cache level; longer runs only if the data is in the L2 cache."""

# A loop over the rows of a batch (`targets/llvm/tile_batch.py`)
BATCH_OF_SYMBOLS = 16
"""Rows of a symbolic batch for which the gain is estimated."""
MAX_THREADS_OF_A_ROW = 4
"""Most threads among which the loops of one row are divided: with more, those of a batch have more to divide."""
LOOP_CYCLES = 2000.0
"""Cycles of an iteration of that loop."""
MIN_GAIN_OF_ROWS = 0.02
"""Part of the time of computing that a loop over rows must save."""

MATRIX_UNIT_ROWS = 4
"""Fewest rows for a matrix unit. A tile of 1 to 16 rows takes AMX the same time, that of reading the columns: 12.7 us
for 6 rows times 768 x 768 of bf16 in the L2 cache, FMA on pairs 42 us; for one row both are equal."""
MATRIX_UNIT_WAKE = 256_000
"""Fewest products: AMX takes 3 us to wake, in which vectors compute about as many."""
MATRIX_UNIT_BLOCK = 8
"""Instructions along K of a block, whose columns stay in the L1 cache: 256 elements of bf16, 512 of int8."""
MATRIX_UNIT_MOST_STEPS = 32
"""Most instructions along K that are in blocks. 128 rows of K = 768 take 0.89 to 0.96 of the time in blocks, of
K = 3072 1.15 to 1.3."""
