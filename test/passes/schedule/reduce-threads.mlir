// RUN: echo '{"version": 1, "primitives": [["split", "total_j", [null, 32, 2]], ["vectorize", "total_j_2"], ["bind", "total_j_1", "threadIdx.x"], ["bind", "total_i", "blockIdx.x"]]}' > %t.json
// RUN: mirlo-opt %s --schedule="target=nvvm given=f=%t.json" > %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: mirlo-opt %t.mlir --map-threads=shuffles=true | FileCheck %s --check-prefix=WARP
// RUN: mirlo-opt %t.mlir --map-threads | FileCheck %s --check-prefix=SHARED
// RUN: echo '{"version": 1, "primitives": [["bind", "total_j", "blockIdx.x"]]}' > %t.bad.json
// RUN: not mirlo-opt %s --schedule="target=nvvm given=f=%t.bad.json" 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not mirlo-opt %t.mlir --lower-loops 2>&1 | FileCheck %s --check-prefix=CPU

// Each thread sums up its elements of a row; the first one stores what all have together.
// CHECK-LABEL: func.func private @f(
// CHECK:         "tir.for"
// CHECK:           "tir.for"
// CHECK:             %[[SUMS:.*]] = scf.for {{.*}} -> (vector<2xf32>)
// CHECK:             %[[PART:.*]] = arith.addf {{.*}} : f32
// CHECK:             %[[TOTAL:.*]] = "tir.reduce_threads"(%[[PART]]) ({
// CHECK-NEXT:        ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
// CHECK-NEXT:          arith.addf %[[A]], %[[B]]
// CHECK:             }) {{{.*}}threads = ["threadIdx.x"]}
// CHECK:             arith.addf {{.*}}, %[[TOTAL]]
// CHECK:             scf.if
// CHECK-NEXT:          memref.store {{.*}}, %arg1
// CHECK:           thread = "threadIdx.x"
// CHECK:         thread = "blockIdx.x"

// WARP:         gpu.launch
// WARP-COUNT-5:   gpu.shuffle
// WARP-NOT:       gpu.barrier
// WARP:           memref.store {{.*}}, %arg1

// SHARED:         gpu.launch
// SHARED:           memref.alloc() : memref<32xf32, 3>
// SHARED-COUNT-7:   gpu.barrier
// SHARED:           memref.store {{.*}}, %arg1

// ERROR: 'total_j' is a loop of the reduction 'total', whose iterations depend on one another
// CPU: the loop is bound to '{{.*}}Idx.x', which this target does not have
func.func private @f(%x: tensor<6x640xf32>) -> tensor<6xf32> attributes {tir.prim_func} {
  %0 = "tir.block"(%x) ({
  ^bb0(%i: index, %j: index, %a: f32, %total: f32):
    %1 = arith.addf %total, %a : f32
    "tir.yield"(%1) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()
  }) {axes = ["spatial", "reduce"], domain = [6, 640], init = [1.0 : f32], maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], name = "total", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<6x640xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
