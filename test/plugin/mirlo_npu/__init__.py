"""The target `npu`: an imaginary matrix unit, found through the entry points of this package."""
