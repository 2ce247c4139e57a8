"""The front end for scikit-learn, and for the libraries whose estimators derive from its classes."""

from __future__ import annotations

from mirlo.extend.frontend import ConvertedModel, ExampleInputs


class _SklearnFrontend:
    """Opens fitted estimators, transformers and pipelines."""

    def convert(self, model: object, example: ExampleInputs) -> ConvertedModel:
        """Convert an estimator."""
        from mirlo_sklearn.convert import convert_estimator

        return convert_estimator(model, example)


FRONTEND = _SklearnFrontend()
