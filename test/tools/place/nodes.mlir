// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/units.py --partition='targets=unit,far nodes={far=0-1+3}' | FileCheck %s
// RUN: mirlo-opt %s --load-pass-plugin=%S/Inputs/units.py --partition='targets=far nodes={far=1} explain' 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/units.py --partition='targets=far nodes={unit=1}' 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not mirlo-opt %s --load-pass-plugin=%S/Inputs/units.py --partition='targets=far nodes={far=3-1}' 2>&1 | FileCheck %s --check-prefix=RANGE

// CHECK:      call @far_region_0
// CHECK-NEXT: "relax.exp"
// CHECK-NEXT: call @far_region_1
// CHECK:      func.func private @far_each_0
// CHECK-NEXT:   "relax.relu"
// WHY: relax.relu is not on far: far.each matched 1 deep: it costs less elsewhere (node=0)
// OTHER: 'partition': nodes: no code generator of the list is 'unit': far
// RANGE: 'partition': nodes: expected numbers such as '0-3+7', found '3-1' in 'far=3-1'
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "relax.relu"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = "relax.exp"(%0) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = "relax.exp"(%1) : (tensor<8xf32>) -> tensor<8xf32>
  %3 = "relax.relu"(%2) : (tensor<8xf32>) -> tensor<8xf32>
  return %3 : tensor<8xf32>
}
