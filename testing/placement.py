"""Placement, for the tests of code generators: targets, regions, declined nodes, reports."""

from mirlo.driver.place.choose import Problem, choose
from mirlo.driver.place.survey import survey
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.session import Session
from mirlo.tools.place.as_text import report
from mirlo.tools.place.decision_text import decision_lines

__all__ = ["Placement", "Problem", "Session", "Targets", "choose", "decision_lines", "report", "survey"]
