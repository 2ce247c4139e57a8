"""The runtime: loads and runs compiled models. It imports nothing of the compiler."""
