# ruff: noqa: F821 (lit defines `config`)

from mirlo.testing import configure_lit

configure_lit(config, __file__, name="mirlo-ranks")
