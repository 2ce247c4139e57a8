"""Names of useful MLIR passes, for lists and for "did you mean".

MLIR's own parser decides whether a name exists (`mirlo.passes.upstream`): passes that are not in these lists run too
when requested.
"""

from __future__ import annotations

CONTAINED: tuple[str, ...] = tuple(
    """
affine-data-copy-generate affine-expand-index-ops affine-expand-index-ops-as-affine affine-fold-memref-alias-ops
affine-loop-coalescing affine-loop-fusion affine-loop-invariant-code-motion affine-loop-normalize affine-loop-tile
affine-loop-unroll affine-loop-unroll-jam affine-parallelize affine-pipeline-data-transfer affine-raise-from-memref
affine-scalrep affine-simplify-min-max affine-simplify-structures affine-simplify-with-bounds affine-super-vectorize
arith-emulate-unsupported-floats arith-emulate-wide-int arith-expand arith-int-range-narrowing
arith-unsigned-when-equivalent bubble-down-memory-space-casts buffer-deallocation-pipeline
buffer-deallocation-simplification buffer-hoisting buffer-loop-hoisting buffer-results-to-out-params
bufferization-lower-deallocations canonicalize control-flow-sink convert-affine-for-to-gpu convert-arith-to-llvm
convert-arith-to-spirv convert-bufferization-to-memref convert-cf-to-llvm convert-cf-to-spirv convert-complex-to-libm
convert-complex-to-llvm convert-complex-to-spirv convert-complex-to-standard convert-elementwise-to-linalg
convert-func-to-llvm convert-func-to-spirv convert-gpu-to-llvm-spv convert-gpu-to-nvvm convert-gpu-to-spirv
convert-index-to-llvm convert-index-to-spirv convert-linalg-to-affine-loops convert-linalg-to-loops
convert-linalg-to-parallel-loops convert-linalg-to-std convert-math-to-funcs convert-math-to-libm convert-math-to-llvm
convert-math-to-nvvm convert-math-to-spirv convert-memref-to-spirv convert-nvgpu-to-nvvm convert-nvvm-to-llvm
convert-parallel-loops-to-gpu convert-pdl-to-pdl-interp convert-scf-to-cf convert-scf-to-spirv convert-spirv-to-llvm
convert-tensor-to-linalg convert-tensor-to-spirv convert-to-llvm convert-ub-to-llvm convert-ub-to-spirv
convert-vector-to-gpu convert-vector-to-llvm convert-vector-to-scf convert-vector-to-spirv cse
drop-equivalent-buffer-results eliminate-empty-tensors empty-tensor-to-alloc-tensor
ensure-debug-info-scope-on-llvm-func expand-realloc expand-strided-metadata finalize-memref-to-llvm flatten-memref
fold-memref-alias-ops fold-tensor-subset-ops generate-runtime-verification gpu-decompose-memrefs
gpu-eliminate-barriers gpu-kernel-outlining gpu-launch-sink-index-computations gpu-map-parallel-loops gpu-to-llvm
int-range-optimizations lift-cf-to-scf linalg-block-pack-matmul linalg-fold-into-elementwise
linalg-fold-unit-extent-dims linalg-fuse-elementwise-ops linalg-generalize-named-ops linalg-inline-scalar-operands
linalg-morph-ops linalg-specialize-generic-ops llvm-add-comdats llvm-legalize-for-export llvm-optimize-for-nvvm-target
llvm-request-c-wrappers llvm-target-to-data-layout llvm-target-to-target-features llvm-use-default-visibility
loop-invariant-code-motion loop-invariant-subset-hoisting lower-affine lower-host-to-llvm lower-vector-mask
lower-vector-multi-reduction lower-vector-to-from-elements-to-shuffle-tree map-memref-spirv-storage-class
math-expand-ops math-extend-to-supported-types math-sincos-fusion math-uplift-to-fma mem2reg
memref-elide-reinterpret-cast memref-emulate-wide-int memref-expand normalize-memrefs nvgpu-optimize-shared-memory
one-shot-bufferize optimize-allocation-liveness ownership-based-buffer-deallocation promote-buffers-to-stack
raise-scf-to-affine reconcile-unrealized-casts reify-result-shapes remove-dead-values
resolve-ranked-shaped-type-result-dims resolve-shaped-type-result-dims sccp scf-for-loop-canonicalization
scf-for-loop-peeling scf-for-loop-range-folding scf-for-loop-specialization scf-for-to-while scf-forall-to-for
scf-forall-to-parallel scf-parallel-for-to-nested-fors scf-parallel-loop-fusion scf-parallel-loop-specialization
scf-parallel-loop-tiling set-llvm-module-datalayout simplify-depthwise-conv spirv-attach-target spirv-canonicalize-gl
spirv-lower-abi-attrs spirv-promote-to-replicated-constants spirv-rewrite-inserts spirv-unify-aliased-resource
spirv-update-vce spirv-webgpu-prepare sroa strip-debuginfo symbol-dce symbol-privatize topological-sort trivial-dce
""".split()  # noqa: SIM905 (a list of one name per line would fill a screen)
)
"""Passes that change nothing but the operation they run on: a pipeline that comes from a file may run these."""

CONTAINED_WITHOUT_OPTIONS = ("inline",)
"""Passes that are contained without options: those of `inline` are pipelines."""

_UNSAFE_PASSES = (
    "gpu-lower-to-nvvm-pipeline",
    "gpu-module-to-binary",
    "nvvm-attach-target",
    "print-ir",
    "print-op-stats",
    "snapshot-op-locations",
    "transform-dialect-check-uses",
    "transform-infer-effects",
    "transform-interpreter",
    "transform-preload-library",
    "view-op-graph",
)
"""Passes that write files, print, start programs, or interpret the module."""

UPSTREAM_NAMES: tuple[str, ...] = tuple(sorted((*CONTAINED, *CONTAINED_WITHOUT_OPTIONS, *_UNSAFE_PASSES)))
