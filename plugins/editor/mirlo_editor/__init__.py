"""The language server `mirlo-lsp`: what editors show of IR and of scripts."""
