// RUN: mirlo import %s | FileCheck %s

// Names come from the program; constants are kept as one element, zero points of 0 are left out; a size of -1 is
// computed; a variable is an input and an output.
// CHECK:      func.func @main(%arg0: tensor<?x4x4x1xf32, #relax.dims<["image_0", 4, 4, 1]>> {relax.name = "image"}
// CHECK-SAME:   %arg1: tensor<2xf32> {relax.name = "seen"}
// CHECK:        "relax.conv"(%arg0, %{{.*}}) {data_layout = "N*C"{{.*}}kernel_layout = "O*I"
// CHECK:        "relax.add"
// CHECK:        %[[R:.*]] = "relax.reshape"(%{{.*}}) {shape = ["image_0", 32]}
// CHECK:        %[[S:.*]] = "relax.add"(%arg1, %{{.*}})
// CHECK:        return %[[R]], %[[S]]
module {
  tosa.variable @seen = dense<0.5> : tensor<2xf32>
  func.func @main(%x: tensor<?x4x4x1xf32> {tosa.tensor_name = "image"}) -> (tensor<?x32xf32> {tosa.tensor_name = "rows"}) {
    %w = "tosa.const"() <{values = dense<2.0> : tensor<2x1x1x1xf32>}> : () -> tensor<2x1x1x1xf32>
    %b = "tosa.const"() <{values = dense<[1.0, 2.0]> : tensor<2xf32>}> : () -> tensor<2xf32>
    %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %s = tosa.const_shape {values = dense<[-1, 32]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %0 = tosa.conv2d %x, %w, %b, %z, %z {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<?x4x4x1xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x4x4x2xf32>
    %1 = tosa.reshape %0, %s : (tensor<?x4x4x2xf32>, !tosa.shape<2>) -> tensor<?x32xf32>
    %2 = tosa.variable_read @seen : tensor<2xf32>
    %3 = tosa.add %2, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    tosa.variable_write @seen, %3 : tensor<2xf32>
    return %1 : tensor<?x32xf32>
  }
}
