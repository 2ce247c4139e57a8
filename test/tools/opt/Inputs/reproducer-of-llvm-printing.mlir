module {}

{-# external_resources: { mlir_reproducer: { pipeline: "builtin.module(print-op-stats{json=true})", verify_each: false } } #-}
