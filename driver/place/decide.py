"""Placement by cost of a model that is not compiled, for reports."""

from __future__ import annotations

from dataclasses import replace

from mirlo.driver.build import build
from mirlo.driver.models import open_model
from mirlo.driver.place.compiling import decide
from mirlo.driver.place.decision import Decision
from mirlo.driver.request import CompileRequest
from mirlo.passes.byoc.target_list import Targets


def decide_placement(request: CompileRequest, targets: Targets) -> Decision:
    """Decide where the nodes of a model go, as the request says, without compiling the model."""
    assert targets.host is not None
    opened = open_model(request.model, request.shapes, rings=request.ring_caches)
    return decide(opened.module, opened.session, targets, replace(request, target=targets.host.name), build)
