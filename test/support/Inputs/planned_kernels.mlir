// One kernel, or a few, in each function: all families of schedules, sizes with and without tails, static and dynamic.
// `snapshots.py` writes tables of how targets plan them (`planned_kernels.py`).

func.func @product_1x300x490_f32(%x: tensor<1x300xf32>, %w: tensor<300x490xf32>, %b: tensor<490xf32>) -> tensor<1x490xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<1x300xf32>, tensor<300x490xf32>) -> tensor<1x490xf32>
  %s = "relax.add"(%p, %b) : (tensor<1x490xf32>, tensor<490xf32>) -> tensor<1x490xf32>
  return %s : tensor<1x490xf32>
}

func.func @product_3x64x20_f32(%x: tensor<3x64xf32>, %w: tensor<64x20xf32>, %b: tensor<20xf32>) -> tensor<3x20xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<3x64xf32>, tensor<64x20xf32>) -> tensor<3x20xf32>
  %s = "relax.add"(%p, %b) : (tensor<3x20xf32>, tensor<20xf32>) -> tensor<3x20xf32>
  return %s : tensor<3x20xf32>
}

func.func @product_70x300x490_f32(%x: tensor<70x300xf32>, %w: tensor<300x490xf32>, %b: tensor<490xf32>) -> tensor<70x490xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<70x300xf32>, tensor<300x490xf32>) -> tensor<70x490xf32>
  %s = "relax.add"(%p, %b) : (tensor<70x490xf32>, tensor<490xf32>) -> tensor<70x490xf32>
  return %s : tensor<70x490xf32>
}

func.func @product_512x768x768_f32(%x: tensor<512x768xf32>, %w: tensor<768x768xf32>, %b: tensor<768xf32>) -> tensor<512x768xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<512x768xf32>, tensor<768x768xf32>) -> tensor<512x768xf32>
  %s = "relax.add"(%p, %b) : (tensor<512x768xf32>, tensor<768xf32>) -> tensor<512x768xf32>
  return %s : tensor<512x768xf32>
}

func.func @product_mx256x100_f32(%x: tensor<?x256xf32, #relax.dims<["m", 256]>>, %w: tensor<256x100xf32>, %b: tensor<100xf32>) -> tensor<?x100xf32, #relax.dims<["m", 100]>> {
  %p = "relax.matmul"(%x, %w) : (tensor<?x256xf32, #relax.dims<["m", 256]>>, tensor<256x100xf32>) -> tensor<?x100xf32, #relax.dims<["m", 100]>>
  %s = "relax.add"(%p, %b) : (tensor<?x100xf32, #relax.dims<["m", 100]>>, tensor<100xf32>) -> tensor<?x100xf32, #relax.dims<["m", 100]>>
  return %s : tensor<?x100xf32, #relax.dims<["m", 100]>>
}

func.func @product_197x64x8_f32(%x: tensor<197x64xf32>, %w: tensor<64x8xf32>, %b: tensor<8xf32>) -> tensor<197x8xf32> {
  %p = "relax.matmul"(%x, %w) : (tensor<197x64xf32>, tensor<64x8xf32>) -> tensor<197x8xf32>
  %s = "relax.add"(%p, %b) : (tensor<197x8xf32>, tensor<8xf32>) -> tensor<197x8xf32>
  return %s : tensor<197x8xf32>
}

func.func @product_1x512x512_f16(%x: tensor<1x512xf16>, %w: tensor<512x512xf16>, %b: tensor<512xf16>) -> tensor<1x512xf16> {
  %p = "relax.matmul"(%x, %w) : (tensor<1x512xf16>, tensor<512x512xf16>) -> tensor<1x512xf16>
  %s = "relax.add"(%p, %b) : (tensor<1x512xf16>, tensor<512xf16>) -> tensor<1x512xf16>
  return %s : tensor<1x512xf16>
}

func.func @product_9x96x200_f16(%x: tensor<9x96xf16>, %w: tensor<96x200xf16>, %b: tensor<200xf16>) -> tensor<9x200xf16> {
  %p = "relax.matmul"(%x, %w) : (tensor<9x96xf16>, tensor<96x200xf16>) -> tensor<9x200xf16>
  %s = "relax.add"(%p, %b) : (tensor<9x200xf16>, tensor<200xf16>) -> tensor<9x200xf16>
  return %s : tensor<9x200xf16>
}

func.func @product_256x512x256_f16(%x: tensor<256x512xf16>, %w: tensor<512x256xf16>, %b: tensor<256xf16>) -> tensor<256x256xf16> {
  %p = "relax.matmul"(%x, %w) : (tensor<256x512xf16>, tensor<512x256xf16>) -> tensor<256x256xf16>
  %s = "relax.add"(%p, %b) : (tensor<256x256xf16>, tensor<256xf16>) -> tensor<256x256xf16>
  return %s : tensor<256x256xf16>
}

func.func @product_mx128x128_f16(%x: tensor<?x128xf16, #relax.dims<["m", 128]>>, %w: tensor<128x128xf16>, %b: tensor<128xf16>) -> tensor<?x128xf16, #relax.dims<["m", 128]>> {
  %p = "relax.matmul"(%x, %w) : (tensor<?x128xf16, #relax.dims<["m", 128]>>, tensor<128x128xf16>) -> tensor<?x128xf16, #relax.dims<["m", 128]>>
  %s = "relax.add"(%p, %b) : (tensor<?x128xf16, #relax.dims<["m", 128]>>, tensor<128xf16>) -> tensor<?x128xf16, #relax.dims<["m", 128]>>
  return %s : tensor<?x128xf16, #relax.dims<["m", 128]>>
}

func.func @transposed_product(%x0: tensor<4x33x64xf32>, %x1: tensor<4x64x33xf32>) -> tensor<4x33x33xf32> {
  %y = "relax.matmul"(%x0, %x1) : (tensor<4x33x64xf32>, tensor<4x64x33xf32>) -> tensor<4x33x33xf32>
  return %y : tensor<4x33x33xf32>
}

func.func @bytes(%x0: tensor<20x64xui8>, %x1: tensor<64x48xi8>) -> tensor<20x48xi32> {
  %y = "relax.matmul"(%x0, %x1) {out_dtype = i32} : (tensor<20x64xui8>, tensor<64x48xi8>) -> tensor<20x48xi32>
  return %y : tensor<20x48xi32>
}

func.func @deep_bytes(%x0: tensor<70x300xi8>, %x1: tensor<300x100xi8>) -> tensor<70x100xi32> {
  %y = "relax.matmul"(%x0, %x1) {out_dtype = i32} : (tensor<70x300xi8>, tensor<300x100xi8>) -> tensor<70x100xi32>
  return %y : tensor<70x100xi32>
}

func.func @conv(%x0: tensor<2x14x15x24xf32>, %x1: tensor<3x3x24x40xf32>) -> tensor<2x14x15x40xf32> {
  %y = "relax.conv"(%x0, %x1) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<2x14x15x24xf32>, tensor<3x3x24x40xf32>) -> tensor<2x14x15x40xf32>
  return %y : tensor<2x14x15x40xf32>
}

func.func @strided(%x0: tensor<1x32x32x3xf32>, %x1: tensor<3x3x3x16xf32>) -> tensor<1x16x16x16xf32> {
  %y = "relax.conv"(%x0, %x1) {padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 2, 2>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x32x32x3xf32>, tensor<3x3x3x16xf32>) -> tensor<1x16x16x16xf32>
  return %y : tensor<1x16x16x16xf32>
}

func.func @depthwise(%x0: tensor<1x28x28x48xf32>, %x1: tensor<3x3x1x48xf32>) -> tensor<1x28x28x48xf32> {
  %y = "relax.conv"(%x0, %x1) {groups = 48 : i64, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x28x28x48xf32>, tensor<3x3x1x48xf32>) -> tensor<1x28x28x48xf32>
  return %y : tensor<1x28x28x48xf32>
}

func.func @pool(%x0: tensor<1x8x30x30xf32>) -> tensor<1x8x15x15xf32> {
  %y = "relax.max_pool"(%x0) {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, padding = array<i64: 1, 1, 1, 1>} : (tensor<1x8x30x30xf32>) -> tensor<1x8x15x15xf32>
  return %y : tensor<1x8x15x15xf32>
}

func.func @softmax(%x0: tensor<37x1000xf32>) -> tensor<37x1000xf32> {
  %y = "relax.softmax"(%x0) {axis = -1 : i64} : (tensor<37x1000xf32>) -> tensor<37x1000xf32>
  return %y : tensor<37x1000xf32>
}

func.func @short_softmax(%x0: tensor<64x8x8xf32>) -> tensor<64x8x8xf32> {
  %y = "relax.softmax"(%x0) {axis = -1 : i64} : (tensor<64x8x8xf32>) -> tensor<64x8x8xf32>
  return %y : tensor<64x8x8xf32>
}

func.func @outer_softmax(%x0: tensor<50x70xf32>) -> tensor<50x70xf32> {
  %y = "relax.softmax"(%x0) {axis = 0 : i64} : (tensor<50x70xf32>) -> tensor<50x70xf32>
  return %y : tensor<50x70xf32>
}

func.func @sum(%x0: tensor<5x9001xf32>) -> tensor<5xf32> {
  %y = "relax.reduce_sum"(%x0) {axes = array<i64: 1>, keepdims = false} : (tensor<5x9001xf32>) -> tensor<5xf32>
  return %y : tensor<5xf32>
}

func.func @outer_sum(%x0: tensor<33x70xf32>) -> tensor<70xf32> {
  %y = "relax.reduce_sum"(%x0) {axes = array<i64: 0>, keepdims = false} : (tensor<33x70xf32>) -> tensor<70xf32>
  return %y : tensor<70xf32>
}

func.func @all(%x0: tensor<130x300xf32>) -> tensor<f32> {
  %y = "relax.reduce_max"(%x0) {axes = array<i64: 0, 1>, keepdims = false} : (tensor<130x300xf32>) -> tensor<f32>
  return %y : tensor<f32>
}

func.func @gelu(%x0: tensor<3x5x129xf32>) -> tensor<3x5x129xf32> {
  %y = "relax.gelu"(%x0) {approximate = "none"} : (tensor<3x5x129xf32>) -> tensor<3x5x129xf32>
  return %y : tensor<3x5x129xf32>
}

func.func @tail(%x0: tensor<7x13xf32>, %x1: tensor<13xf32>) -> tensor<7x13xf32> {
  %y = "relax.add"(%x0, %x1) : (tensor<7x13xf32>, tensor<13xf32>) -> tensor<7x13xf32>
  return %y : tensor<7x13xf32>
}

func.func @half(%x0: tensor<40x65xf32>) -> tensor<40x65xf16> {
  %y = "relax.cast"(%x0) {dtype = f16} : (tensor<40x65xf32>) -> tensor<40x65xf16>
  return %y : tensor<40x65xf16>
}

func.func @bool(%x0: tensor<5x77xf32>, %x1: tensor<5x77xf32>) -> tensor<5x77xi1> {
  %y = "relax.less"(%x0, %x1) : (tensor<5x77xf32>, tensor<5x77xf32>) -> tensor<5x77xi1>
  return %y : tensor<5x77xi1>
}

func.func @transpose(%x0: tensor<100x65xf32>) -> tensor<65x100xf32> {
  %y = "relax.permute"(%x0) {axes = array<i64: 1, 0>} : (tensor<100x65xf32>) -> tensor<65x100xf32>
  return %y : tensor<65x100xf32>
}

func.func @heads(%x0: tensor<1x60x4x32xf32>) -> tensor<1x4x60x32xf32> {
  %y = "relax.permute"(%x0) {axes = array<i64: 0, 2, 1, 3>} : (tensor<1x60x4x32xf32>) -> tensor<1x4x60x32xf32>
  return %y : tensor<1x4x60x32xf32>
}

func.func @channels_last(%x0: tensor<1x3x30x30xf32>) -> tensor<1x30x30x3xf32> {
  %y = "relax.permute"(%x0) {axes = array<i64: 0, 2, 3, 1>} : (tensor<1x3x30x30xf32>) -> tensor<1x30x30x3xf32>
  return %y : tensor<1x30x30x3xf32>
}

func.func @padded(%x0: tensor<20x30xf32>) -> tensor<22x34xf32> {
  %y = "relax.pad"(%x0) {pads = array<i64: 0, 1, 2, 3>} : (tensor<20x30xf32>) -> tensor<22x34xf32>
  return %y : tensor<22x34xf32>
}

func.func @every_third(%x0: tensor<9x64xf32>) -> tensor<9x20xf32> {
  %y = "relax.strided_slice"(%x0) {axes = array<i64: 1>, begin = array<i64: 1>, end = array<i64: 61>, strides = array<i64: 3>} : (tensor<9x64xf32>) -> tensor<9x20xf32>
  return %y : tensor<9x20xf32>
}

func.func @rows_of_table(%x0: tensor<100x48xf32>, %x1: tensor<7xi64>) -> tensor<7x48xf32> {
  %y = "relax.gather"(%x0, %x1) : (tensor<100x48xf32>, tensor<7xi64>) -> tensor<7x48xf32>
  return %y : tensor<7x48xf32>
}

func.func @argmax(%x0: tensor<6x300xf32>) -> tensor<6xi64> {
  %y = "relax.argmax"(%x0) {axis = 1 : i64, keepdims = false} : (tensor<6x300xf32>) -> tensor<6xi64>
  return %y : tensor<6xi64>
}

func.func @attention(%x0: tensor<1x4x100x64xf32>, %x1: tensor<1x4x130x64xf32>, %x2: tensor<1x4x130x64xf32>) -> tensor<1x4x100x64xf32> {
  %y = "relax.attention"(%x0, %x1, %x2) : (tensor<1x4x100x64xf32>, tensor<1x4x130x64xf32>, tensor<1x4x130x64xf32>) -> tensor<1x4x100x64xf32>
  return %y : tensor<1x4x100x64xf32>
}

func.func @causal(%x0: tensor<1x8x256x64xf32>, %x1: tensor<1x2x256x64xf32>, %x2: tensor<1x2x256x64xf32>) -> tensor<1x8x256x64xf32> {
  %y = "relax.attention"(%x0, %x1, %x2) {causal = true} : (tensor<1x8x256x64xf32>, tensor<1x2x256x64xf32>, tensor<1x2x256x64xf32>) -> tensor<1x8x256x64xf32>
  return %y : tensor<1x8x256x64xf32>
}

func.func @one_token(%x0: tensor<1x8x1x64xf32>, %x1: tensor<1x2x1024x64xf32>, %x2: tensor<1x2x1024x64xf32>) -> tensor<1x8x1x64xf32> {
  %y = "relax.attention"(%x0, %x1, %x2) : (tensor<1x8x1x64xf32>, tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>) -> tensor<1x8x1x64xf32>
  return %y : tensor<1x8x1x64xf32>
}

func.func @half_attention(%x0: tensor<1x4x128x64xf16>, %x1: tensor<1x4x128x64xf16>, %x2: tensor<1x4x128x64xf16>) -> tensor<1x4x128x64xf16> {
  %y = "relax.attention"(%x0, %x1, %x2) : (tensor<1x4x128x64xf16>, tensor<1x4x128x64xf16>, tensor<1x4x128x64xf16>) -> tensor<1x4x128x64xf16>
  return %y : tensor<1x4x128x64xf16>
}

func.func @layer_norm(%x: tensor<19x96xf32>, %s: tensor<96xf32>, %b: tensor<96xf32>) -> tensor<19x96xf32> {
  %y = "relax.layer_norm"(%x, %s, %b) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<19x96xf32>, tensor<96xf32>, tensor<96xf32>) -> tensor<19x96xf32>
  return %y : tensor<19x96xf32>
}

func.func @dynamic_softmax(%x: tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>> {
  %y = "relax.softmax"(%x) {axis = -1 : i64} : (tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>>
  return %y : tensor<?x?xf32, #relax.dims<["n", "m"]>>
}

func.func @dynamic_bias(%x: tensor<?x?xf32, #relax.dims<["n", "m"]>>, %b: tensor<?xf32, #relax.dims<["m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>> {
  %y = "relax.add"(%x, %b) : (tensor<?x?xf32, #relax.dims<["n", "m"]>>, tensor<?xf32, #relax.dims<["m"]>>) -> tensor<?x?xf32, #relax.dims<["n", "m"]>>
  return %y : tensor<?x?xf32, #relax.dims<["n", "m"]>>
}

func.func @dynamic_transpose(%x: tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?x?xf32, #relax.dims<["m", "n"]>> {
  %y = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<?x?xf32, #relax.dims<["n", "m"]>>) -> tensor<?x?xf32, #relax.dims<["m", "n"]>>
  return %y : tensor<?x?xf32, #relax.dims<["m", "n"]>>
}

func.func @dynamic_image(%x: tensor<?x?x16x8xf32, #relax.dims<["n", "h", 16, 8]>>, %w: tensor<3x3x8x24xf32>) -> tensor<?x?x16x24xf32, #relax.dims<["n", "h", 16, 24]>> {
  %y = "relax.conv"(%x, %w) {padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<?x?x16x8xf32, #relax.dims<["n", "h", 16, 8]>>, tensor<3x3x8x24xf32>) -> tensor<?x?x16x24xf32, #relax.dims<["n", "h", 16, 24]>>
  return %y : tensor<?x?x16x24xf32, #relax.dims<["n", "h", 16, 24]>>
}

func.func @joined(%x: tensor<12x20xf32>, %y: tensor<12x44xf32>) -> tensor<12x64xf32> {
  %z = "relax.concat"(%x, %y) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>} : (tensor<12x20xf32>, tensor<12x44xf32>) -> tensor<12x64xf32>
  return %z : tensor<12x64xf32>
}

func.func @average(%x: tensor<1x9x9x24xf32>) -> tensor<1x9x9x24xf32> {
  %y = "relax.avg_pool"(%x) {kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C"} : (tensor<1x9x9x24xf32>) -> tensor<1x9x9x24xf32>
  return %y : tensor<1x9x9x24xf32>
}

func.func @groups(%x: tensor<1x12x12x32xf32>, %w: tensor<3x3x8x64xf32>) -> tensor<1x12x12x64xf32> {
  %y = "relax.conv"(%x, %w) {groups = 4 : i64, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x12x12x32xf32>, tensor<3x3x8x64xf32>) -> tensor<1x12x12x64xf32>
  return %y : tensor<1x12x12x64xf32>
}

func.func @image_of_bytes(%x: tensor<1x14x14x64xui8>, %w: tensor<3x3x64x32xi8>) -> tensor<1x14x14x32xi32> {
  %y = "relax.conv"(%x, %w) {out_dtype = i32, padding = array<i64: 1, 1, 1, 1>, data_layout = "N*C", kernel_layout = "*IO"} : (tensor<1x14x14x64xui8>, tensor<3x3x64x32xi8>) -> tensor<1x14x14x32xi32>
  return %y : tensor<1x14x14x32xi32>
}

func.func @middle_mean(%x: tensor<3x40x24xf32>) -> tensor<3x24xf32> {
  %y = "relax.reduce_mean"(%x) {axes = array<i64: 1>, keepdims = false} : (tensor<3x40x24xf32>) -> tensor<3x24xf32>
  return %y : tensor<3x24xf32>
}

func.func @large_transpose(%x: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %y = "relax.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %y : tensor<4096x4096xf32>
}

func.func @large_product(%x: tensor<2x4096x1024xf16>, %w: tensor<1024x2048xf16>) -> tensor<2x4096x2048xf16> {
  %y = "relax.matmul"(%x, %w) : (tensor<2x4096x1024xf16>, tensor<1024x2048xf16>) -> tensor<2x4096x2048xf16>
  return %y : tensor<2x4096x2048xf16>
}

func.func @long_rows(%x: tensor<96x20000xf32>) -> tensor<96x20000xf32> {
  %y = "relax.softmax"(%x) {axis = -1 : i64} : (tensor<96x20000xf32>) -> tensor<96x20000xf32>
  return %y : tensor<96x20000xf32>
}

func.func @odd_bytes(%x: tensor<7x64xui8>, %w: tensor<64x33xi8>) -> tensor<7x33xi32> {
  %y = "relax.matmul"(%x, %w) {out_dtype = i32} : (tensor<7x64xui8>, tensor<64x33xi8>) -> tensor<7x33xi32>
  return %y : tensor<7x33xi32>
}

func.func @wide_heads(%q: tensor<1x4x128x80xf16>, %k: tensor<1x4x128x80xf16>, %v: tensor<1x4x128x80xf16>) -> tensor<1x4x128x80xf16> {
  %y = "relax.attention"(%q, %k, %v) : (tensor<1x4x128x80xf16>, tensor<1x4x128x80xf16>, tensor<1x4x128x80xf16>) -> tensor<1x4x128x80xf16>
  return %y : tensor<1x4x128x80xf16>
}

func.func @many_rows(%q: tensor<4x16x2048x80xf16>, %k: tensor<4x16x2048x80xf16>, %v: tensor<4x16x2048x80xf16>) -> tensor<4x16x2048x80xf16> {
  %y = "relax.attention"(%q, %k, %v) {causal = true} : (tensor<4x16x2048x80xf16>, tensor<4x16x2048x80xf16>, tensor<4x16x2048x80xf16>) -> tensor<4x16x2048x80xf16>
  return %y : tensor<4x16x2048x80xf16>
}

func.func @centered(%x: tensor<5000xf32>) -> tensor<5000xf32> {
  %m = "relax.reduce_mean"(%x) {axes = array<i64: 0>, keepdims = true} : (tensor<5000xf32>) -> tensor<1xf32>
  %y = "relax.subtract"(%x, %m) : (tensor<5000xf32>, tensor<1xf32>) -> tensor<5000xf32>
  return %y : tensor<5000xf32>
}

func.func @paged(%query: tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>, %cache: tensor<?x16x2x8xf32, #relax.dims<["n", 16, 2, 8]>>, %table: tensor<?x?xi64, #relax.dims<["b", "m"]>>, %lengths: tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>> {
  %0 = "relax.paged_attention"(%query, %cache, %cache, %table, %lengths) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0, 0, 0>} : (tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>, tensor<?x16x2x8xf32, #relax.dims<["n", 16, 2, 8]>>, tensor<?x16x2x8xf32, #relax.dims<["n", 16, 2, 8]>>, tensor<?x?xi64, #relax.dims<["b", "m"]>>, tensor<?xi64, #relax.dims<["b"]>>) -> tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>
  return %0 : tensor<?x4x?x8xf32, #relax.dims<["b", 4, "s", 8]>>
}
