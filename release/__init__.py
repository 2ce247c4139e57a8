"""What a person who releases Mirlo runs: checks, the bill of materials, the tests with another wheel of MLIR."""
