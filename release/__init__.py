"""Commands for a release of Mirlo: checks, the bill of materials, the tests with another wheel of MLIR."""
