"""lit's configuration of the plug-in."""

# ruff: noqa: F821 (lit defines `config`)
from mirlo.testing import configure_lit

configure_lit(config, __file__, plugin="mirlo_npu.claim", name="mirlo-npu")
