"""`mirlo compile MODEL --emit npm`: a model as a package of npm, for Node.js and browsers."""

from __future__ import annotations

from mirlo.extend.target import LibraryForm
from mirlo_npm.writer import write_package

FORM = LibraryForm(
    "npm", "a package of npm: a module of WebAssembly, JavaScript, types, a worker, a demo page", write_package,
    target="llvm{cpu=generic triple=wasm32-unknown-unknown features=+simd128,+atomics,+bulk-memory}",
)  # fmt: skip
