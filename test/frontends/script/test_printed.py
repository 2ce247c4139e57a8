"""Scripts of all operators and of their prim functions, and calls of TVM's operators."""

from __future__ import annotations

from printed_scripts import scripts, tvm_calls
from snapshots import assert_snapshot


def test_scripts_are_those_of_the_table() -> None:
    assert_snapshot("frontends/script/scripts.txt", scripts())


def test_calls_of_tvm_are_those_of_the_table() -> None:
    assert_snapshot("frontends/script/tvm_calls.txt", tvm_calls())
