"""BYOC: subgraphs given to code generators, as passes from module to module."""
