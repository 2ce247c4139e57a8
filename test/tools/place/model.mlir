// RUN: mirlo partition %s --targets unit,far,llvm --plugin %S/Inputs/units.py | FileCheck %s
// RUN: mirlo partition %s --targets unit,far,llvm --plugin %S/Inputs/units.py --attempts | FileCheck %s --check-prefix=TRIED
// RUN: mirlo partition %s --targets unit,far --plugin %S/Inputs/units.py --node relax.log | FileCheck %s --check-prefix=NODE
// RUN: not mirlo partition %s --targets unit,far --plugin %S/Inputs/units.py --node relax.sin 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not mirlo partition %s --targets llvm 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: not mirlo partition %s --targets unit,llvm --plugin %S/Inputs/units.py --report r.pdf 2>&1 | FileCheck %s --check-prefix=FORM

// CHECK:      target {{ *}}operators {{ *}}FLOPs {{ *}}share {{ *}}bytes {{ *}}composites {{ *}}regions
// CHECK-NEXT: unit            3  9.07 k  74.12 %  5.1 KiB           2        2  1.9 KiB  1.7 KiB  2 (2 at its boundary)       0
// CHECK-NEXT: far             1     288   2.35 %  2.2 KiB           1        1  1.1 KiB  1.1 KiB                      0       2
// CHECK-NEXT: llvm            3
// CHECK:      regions:
// CHECK-NEXT:   unit_region_0  2 operators  7.92 k FLOPs  768 bytes in  576 bytes out
// CHECK-NEXT:   unit_region_1  1 operator
// CHECK:      nodes:
// CHECK-NEXT:   unit.conv_relu: relax.conv "first" → f32[1, 4, 6, 6]
// CHECK-NEXT:   unit.conv_relu: relax.relu "act" → f32[1, 4, 6, 6]
// CHECK-NEXT:   llvm: relax.conv "wide" → f32[1, 8, 6, 6]
// CHECK-NEXT:       not on unit: unit.conv_relu matched 2 deep: the unit has 4 accumulators (channels=8)
// CHECK-NEXT:       not on far: no pattern of far has the operator relax.conv

// A node tells what was tried from others, too, and which predicate said no.
// TRIED:       llvm: relax.conv "wide"
// TRIED-NEXT:    unit.conv_relu from "wide act": no, 2 deep: the unit has 4 accumulators (channels=8) (at "wide act") [small]
// TRIED-NEXT:    far: no pattern of far has the operator relax.conv

// NODE-NOT: relax.relu
// NODE:     nobody: relax.log
// NODE-NEXT:  unit: no pattern of unit has the operator relax.log
// NODE-NEXT:  far: no pattern of far has the operator relax.log

// NONE: mirlo: error[{{.*}}]: the model has no node 'relax.sin' when it is placed
// WHOLE: mirlo: error[{{.*}}]: target 'llvm' compiles whole models, there is nothing to divide: name a code generator before it, such as 'onednn,llvm'
// FORM: mirlo: error[{{.*}}]: --report r.pdf: expected a file that ends in
func.func @main(%x: tensor<1x3x8x8xf32>) -> tensor<1x8x6x6xf32> {
  %w = "relax.constant"() {value = dense<0.1> : tensor<4x3x3x3xf32>} : () -> tensor<4x3x3x3xf32>
  %v = "relax.constant"() {value = dense<0.1> : tensor<8x4x1x1xf32>} : () -> tensor<8x4x1x1xf32>
  %0 = "relax.conv"(%x, %w) : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32> loc("first")
  %1 = "relax.relu"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("act")
  %2 = "relax.conv"(%1, %v) : (tensor<1x4x6x6xf32>, tensor<8x4x1x1xf32>) -> tensor<1x8x6x6xf32> loc("wide")
  %3 = "relax.relu"(%2) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> loc("wide act")
  %4 = "relax.log"(%3) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> loc("log")
  %5 = "relax.sigmoid"(%4) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> loc("gate")
  %6 = "relax.multiply"(%4, %5) : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> loc("swish")
  %7 = "relax.negative"(%6) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> loc("minus")
  return %7 : tensor<1x8x6x6xf32>
}
