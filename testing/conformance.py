"""The checks of `mirlo check-target`, for the tests of targets and code generators."""

from mirlo.tools.conformance.check import OK, check_target, checks_of, names
from mirlo.tools.conformance.programs import run

__all__ = ["OK", "check_target", "checks_of", "names", "run"]
