"""The language server `mirlo-lsp` for IR and scripts."""
