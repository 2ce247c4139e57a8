"""Objects that are no fitted estimators: the message names what to compile instead. Needs none of the libraries."""

from __future__ import annotations

import numpy as np
import pytest
from mirlo_sklearn.convert import SklearnImportError, convert_estimator

from mirlo.extend.frontend import ExampleInputs


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_booster_names_its_estimators(library: str) -> None:
    booster = type("Booster", (), {"__module__": f"{library}.core"})()
    example = ExampleInputs((np.zeros((1, 2), np.float32),))
    with pytest.raises(SklearnImportError, match=f"a {library}.Booster is no estimator .* `load_model` reads"):
        convert_estimator(booster, example)
