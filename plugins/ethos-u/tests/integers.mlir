// The operators of integers that converted models of TensorFlow Lite consist of.
func.func @main(%x: tensor<1x9x9x4xi8>) -> (tensor<1x2x2x16xi8>, tensor<1x8xi8>) {
  %c1 = "tosa.const"() <{values = dense<[[[[3, 6, -9, 6], [-1, 0, 2, -4], [9, -8, -4, -2]], [[1, -2, -7, -9], [-9, -9, -7, 9], [-6, 3, 5, -5]], [[-4, -1, -4, 9], [-6, 8, 6, 7], [-7, -2, 2, 0]]], [[[3, 3, 3, -8], [9, 1, 8, -4], [-3, 7, -6, -8]], [[-2, 3, -7, 7], [-3, -5, 1, 8], [7, 7, -4, -9]], [[5, 4, 5, -9], [-9, 0, -3, -1], [8, -6, 1, -3]]], [[[-4, 6, -7, -3], [-7, -7, -4, 4], [2, -1, -6, 6]], [[6, -5, -8, -3], [-7, 6, 0, 0], [-4, 0, 9, -5]], [[5, -9, -4, 8], [7, -8, 7, 7], [-1, -3, 9, 9]]], [[[3, -2, -6, 8], [-4, 1, 3, -5], [-4, 5, -6, 3]], [[8, 3, 3, -1], [9, -5, -3, 3], [3, -7, -6, 4]], [[6, 3, 8, -2], [-3, 6, -9, -6], [-6, -2, -7, 6]]], [[[7, -2, -9, 4], [-7, 2, -6, 8], [3, 9, 2, 4]], [[-2, 6, -7, -7], [-3, 4, 0, 7], [8, -2, -1, 1]], [[3, 0, 2, 9], [4, -3, -1, -2], [-7, -9, 6, -2]]], [[[-3, 2, 1, 8], [2, 8, 1, -3], [-3, 9, 2, -6]], [[6, 6, -9, -7], [4, -2, -3, -8], [-6, 7, 6, 6]], [[1, -7, -3, 1], [9, -5, 1, 0], [0, 1, 4, -7]]], [[[9, 7, 5, -4], [-1, -1, -4, -8], [5, -9, 5, -6]], [[3, -3, -5, 8], [0, 7, -6, 0], [-3, -1, -9, 3]], [[-3, 7, -5, -3], [-9, 6, 1, -2], [8, 2, 9, 5]]], [[[2, 0, -6, 4], [6, 4, -2, -9], [4, -9, 6, -7]], [[-4, -5, 1, -6], [-5, -9, 9, -5], [-6, 2, -7, 7]], [[5, -3, -2, -3], [4, -2, -4, 3], [-7, 5, -1, 8]]]]> : tensor<8x3x3x4xi8>}> : () -> tensor<8x3x3x4xi8>
  %c2 = "tosa.const"() <{values = dense<[-48, -25, 73, 40, -92, -32, -96, 64]> : tensor<8xi32>}> : () -> tensor<8xi32>
  %c3 = "tosa.const"() <{values = dense<[-3]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c4 = "tosa.const"() <{values = dense<[0]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v5 = tosa.conv2d %x, %c1, %c2, %c3, %c4 {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x9x9x4xi8>, tensor<8x3x3x4xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x9x9x8xi32>
  %c6 = "tosa.const"() <{values = dense<[1521022805, 1321399198, 1852839067, 2008985674, 1185304839, 1616094459, 1467025781, 1852574046]> : tensor<8xi32>}> : () -> tensor<8xi32>
  %c7 = "tosa.const"() <{values = dense<[37, 37, 37, 36, 37, 36, 37, 36]> : tensor<8xi8>}> : () -> tensor<8xi8>
  %c8 = "tosa.const"() <{values = dense<[0]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c9 = "tosa.const"() <{values = dense<[-128]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v10 = tosa.rescale %v5, %c6, %c7, %c8, %c9 {scale32 = true, rounding_mode = DOUBLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x9x9x8xi32>, tensor<8xi32>, tensor<8xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x9x9x8xi8>
  %v11 = tosa.clamp %v10 {min_val = -128 : i8, max_val = 100 : i8} : (tensor<1x9x9x8xi8>) -> tensor<1x9x9x8xi8>
  %c12 = "tosa.const"() <{values = dense<[[[[-16], [-28], [28], [1], [-1], [-2], [-28], [19]], [[20], [-29], [7], [3], [-8], [-1], [22], [5]], [[-1], [13], [11], [1], [19], [3], [7], [-1]]], [[[5], [6], [23], [-16], [-9], [3], [-10], [10]], [[19], [-19], [-27], [29], [0], [14], [15], [27]], [[-29], [-13], [29], [-4], [-7], [-15], [-29], [-28]]], [[[28], [-29], [-22], [-16], [-13], [21], [-11], [-21]], [[-7], [11], [-4], [-16], [-23], [-27], [-1], [-19]], [[5], [10], [-8], [0], [-27], [2], [-20], [-3]]]]> : tensor<3x3x8x1xi8>}> : () -> tensor<3x3x8x1xi8>
  %c13 = "tosa.const"() <{values = dense<[-78, -45, -17, -3, -94, 83, -16, -60]> : tensor<8xi32>}> : () -> tensor<8xi32>
  %c14 = "tosa.const"() <{values = dense<[-128]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c15 = "tosa.const"() <{values = dense<[0]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v16 = tosa.depthwise_conv2d %v11, %c12, %c13, %c14, %c15 {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x9x9x8xi8>, tensor<3x3x8x1xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x9x9x8xi32>
  %c17 = "tosa.const"() <{values = dense<[1286180275, 1860509078, 1543624292, 1343390263, 1557952888, 1281420723, 1247162856, 1421468154]> : tensor<8xi32>}> : () -> tensor<8xi32>
  %c18 = "tosa.const"() <{values = dense<[39, 38, 39, 39, 38, 38, 39, 38]> : tensor<8xi8>}> : () -> tensor<8xi8>
  %c19 = "tosa.const"() <{values = dense<[0]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c20 = "tosa.const"() <{values = dense<[5]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v21 = tosa.rescale %v16, %c17, %c18, %c19, %c20 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x9x9x8xi32>, tensor<8xi32>, tensor<8xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x9x9x8xi8>
  %c22 = "tosa.const"() <{values = dense<[1073741824]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c23 = "tosa.const"() <{values = dense<[11]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c24 = "tosa.const"() <{values = dense<[-128]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c25 = "tosa.const"() <{values = dense<[0]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %v26 = tosa.rescale %v11, %c22, %c23, %c24, %c25 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x9x9x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x9x9x8xi32>
  %c27 = "tosa.const"() <{values = dense<[1518500250]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c28 = "tosa.const"() <{values = dense<[12]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c29 = "tosa.const"() <{values = dense<[5]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c30 = "tosa.const"() <{values = dense<[0]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %v31 = tosa.rescale %v21, %c27, %c28, %c29, %c30 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x9x9x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x9x9x8xi32>
  %v32 = tosa.add %v26, %v31 {} : (tensor<1x9x9x8xi32>, tensor<1x9x9x8xi32>) -> tensor<1x9x9x8xi32>
  %c33 = "tosa.const"() <{values = dense<[1073741824]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c34 = "tosa.const"() <{values = dense<[50]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c35 = "tosa.const"() <{values = dense<[0]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c36 = "tosa.const"() <{values = dense<[-7]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v37 = tosa.rescale %v32, %c33, %c34, %c35, %c36 {scale32 = true, rounding_mode = DOUBLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x9x9x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x9x9x8xi8>
  %c38 = "tosa.const"() <{values = dense<[-127, -127, -127, -127, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -126, -125, -125, -125, -125, -125, -125, -125, -125, -125, -125, -124, -124, -124, -124, -124, -124, -124, -123, -123, -123, -123, -123, -122, -122, -122, -122, -121, -121, -121, -121, -120, -120, -120, -119, -119, -118, -118, -118, -117, -117, -116, -116, -115, -114, -114, -113, -112, -112, -111, -110, -109, -109, -108, -107, -106, -105, -104, -103, -102, -100, -99, -98, -97, -95, -94, -92, -91, -89, -88, -86, -84, -83, -81, -79, -77, -75, -73, -70, -68, -66, -64, -61, -59, -56, -54, -51, -48, -46, -43, -40, -37, -34, -31, -28, -25, -22, -19, -16, -13, -10, -6, -3, 0, 3, 6, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46, 48, 51, 54, 56, 59, 61, 64, 66, 68, 70, 73, 75, 77, 79, 81, 83, 84, 86, 88, 89, 91, 92, 94, 95, 97, 98, 99, 100, 102, 103, 104, 105, 106, 107, 108, 109, 109, 110, 111, 112, 112, 113, 114, 114, 115, 116, 116, 117, 117, 118, 118, 118, 119, 119, 120, 120, 120, 121, 121, 121, 121, 122, 122, 122, 122, 123, 123, 123, 123, 123, 124, 124, 124, 124, 124, 124, 124, 125, 125, 125, 125, 125, 125, 125, 125, 125, 125, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 126, 127, 127, 127]> : tensor<256xi8>}> : () -> tensor<256xi8>
  %v39 = tosa.table %v37, %c38 {} : (tensor<1x9x9x8xi8>, tensor<256xi8>) -> tensor<1x9x9x8xi8>
  %s40 = tosa.const_shape {values = dense<[0, 0, 0, 0]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %s41 = tosa.const_shape {values = dense<[1, 8, 8, 8]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %v42 = tosa.slice %v39, %s40, %s41 {} : (tensor<1x9x9x8xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x8x8x8xi8>
  %v43 = tosa.max_pool2d %v42 {kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x8x8x8xi8>) -> tensor<1x4x4x8xi8>
  %c44 = "tosa.const"() <{values = dense<[0]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c45 = "tosa.const"() <{values = dense<[0]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v46 = tosa.avg_pool2d %v43, %c44, %c45 {acc_type = i32, kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x4x4x8xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x2x2x8xi8>
  %v47 = tosa.concat %v46, %v46 {axis = 3 : i32} : (tensor<1x2x2x8xi8>, tensor<1x2x2x8xi8>) -> tensor<1x2x2x16xi8>
  %c48 = "tosa.const"() <{values = dense<[1073741824]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c49 = "tosa.const"() <{values = dense<[30]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c50 = "tosa.const"() <{values = dense<[0]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c51 = "tosa.const"() <{values = dense<[0]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %v52 = tosa.rescale %v39, %c48, %c49, %c50, %c51 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x9x9x8xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x9x9x8xi32>
  %v53 = tosa.reduce_sum %v52 {axis = 1 : i32} : (tensor<1x9x9x8xi32>) -> tensor<1x1x9x8xi32>
  %v54 = tosa.reduce_sum %v53 {axis = 2 : i32} : (tensor<1x1x9x8xi32>) -> tensor<1x1x1x8xi32>
  %c55 = "tosa.const"() <{values = dense<[1696777203]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c56 = "tosa.const"() <{values = dense<[37]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %c57 = "tosa.const"() <{values = dense<[0]> : tensor<1xi32>}> : () -> tensor<1xi32>
  %c58 = "tosa.const"() <{values = dense<[0]> : tensor<1xi8>}> : () -> tensor<1xi8>
  %v59 = tosa.rescale %v54, %c55, %c56, %c57, %c58 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x1x8xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x1x8xi8>
  %s60 = tosa.const_shape {values = dense<[1, 8]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %v61 = tosa.reshape %v59, %s60 {} : (tensor<1x1x1x8xi8>, !tosa.shape<2>) -> tensor<1x8xi8>
  return %v47, %v61 : tensor<1x2x2x16xi8>, tensor<1x8xi8>
}
