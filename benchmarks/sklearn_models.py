"""Estimators of scikit-learn, LightGBM and XGBoost: Mirlo beside the estimator, ONNX Runtime, treelite and lleaves.

python -m benchmarks.sklearn_models [ESTIMATOR ...]   # needs skl2onnx; treelite with tl2cgen, and lleaves, if there

One thread; microseconds of processor time of a call, the least of those that fit into some time, in turns.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROWS = (1, 16, 256, 5000, 100_000)
MOST = {"svc": 5000, "neighbours": 5000}
"""Most rows of estimators that compare each with those that they were fitted to."""
SECONDS = 0.4
"""Time for the calls of all engines with a number of rows."""
Call = Callable[[np.ndarray], Any]


def estimators() -> dict[str, Callable[[], Any]]:
    """Return functions that make estimators; those whose package is missing are left out."""
    from sklearn import ensemble, linear_model, neighbors, neural_network, pipeline, preprocessing, svm

    result: dict[str, Callable[[], Any]] = {
        "logistic regression": linear_model.LogisticRegression,
        "scaled logistic regression": lambda: pipeline.make_pipeline(
            preprocessing.StandardScaler(), linear_model.LogisticRegression()
        ),
        "ridge": linear_model.Ridge,
        "perceptron": lambda: neural_network.MLPClassifier((64, 64), max_iter=20, random_state=0),
        "svc": lambda: svm.SVC(probability=False),
        "neighbours": lambda: neighbors.KNeighborsClassifier(),
        "random forest": lambda: ensemble.RandomForestClassifier(100, max_depth=8, random_state=0),
        "extra trees": lambda: ensemble.ExtraTreesRegressor(100, max_depth=8, random_state=0),
        "gradient boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=100, max_depth=4, random_state=0),
    }
    try:
        import lightgbm

        result["LightGBM"] = lambda: lightgbm.LGBMRegressor(n_estimators=100, num_leaves=31, n_jobs=1, verbose=-1)
    except ImportError:
        pass
    try:
        import xgboost

        result["XGBoost"] = lambda: xgboost.XGBRegressor(n_estimators=100, max_depth=6, n_jobs=1)
    except ImportError:
        pass
    return result


def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of 20 features, and classes."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, 20)).astype(np.float32)
    return x, ((x[:, :5] ** 2).sum(1) + x[:, 5] * x[:, 6] > 5).astype(np.int64)


def engines(model: Any, example: np.ndarray, folder: Path) -> Iterator[tuple[str, Call]]:
    """Return what computes an estimator's method, by name: the estimator, Mirlo, and others that are installed."""
    import onnxruntime
    from mirlo_sklearn.convert import convert_estimator

    import mirlo
    from mirlo.frontends.foreign import ExampleInputs

    method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    yield "scikit-learn", getattr(model, method)
    compiled = mirlo.compile(model, example, threads=1, cache=False)
    yield "Mirlo", getattr(compiled, method)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    proto = convert_estimator(model, ExampleInputs((example,))).model
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    output = session.get_outputs()[-1].name
    name = session.get_inputs()[0].name
    yield "ONNX Runtime", lambda x: session.run([output], {name: x})[0]
    yield from _treelite(model, folder)
    yield from _lleaves(model, folder)


def _treelite(model: Any, folder: Path) -> Iterator[tuple[str, Call]]:
    """Return treelite's compiled form of an ensemble of trees."""
    try:
        import tl2cgen
        import treelite

        kind = type(model).__module__.partition(".")[0]
        if kind == "lightgbm":
            trees = treelite.frontend.from_lightgbm(model.booster_)
        elif kind == "xgboost":
            trees = treelite.frontend.from_xgboost(model.get_booster())
        else:
            trees = treelite.sklearn.import_model(model)
        path = folder / "treelite.so"
        tl2cgen.export_lib(trees, toolchain="gcc", libpath=str(path), params={"parallel_comp": 8}, verbose=False)
        predictor = tl2cgen.Predictor(str(path), nthread=1, verbose=False)
    except Exception as error:
        print(f"treelite does not compile it: {error}", file=sys.stderr)
        return
    yield "treelite", lambda x: predictor.predict(tl2cgen.DMatrix(x))


def _lleaves(model: Any, folder: Path) -> Iterator[tuple[str, Call]]:
    """Return lleaves's compiled form of a model of LightGBM."""
    try:
        import lleaves

        path = folder / "lightgbm.txt"
        model.booster_.save_model(path)
        compiled = lleaves.Model(model_file=str(path))
        compiled.compile()
    except Exception as error:
        print(f"lleaves does not compile it: {error}", file=sys.stderr)
        return
    yield "lleaves", lambda x: compiled.predict(x, n_jobs=1)


def least(calls: Sequence[Call], x: np.ndarray) -> list[float]:
    """Return microseconds of processor time of each call: the least, in turns."""
    best = [float("inf")] * len(calls)
    end, rounds = time.perf_counter() + SECONDS * len(calls), 0
    while rounds < 2 or time.perf_counter() < end:
        rounds += 1
        for index, call in enumerate(calls):
            start = time.thread_time()
            call(x)
            best[index] = min(best[index], 1e6 * (time.thread_time() - start))
    return best


COLUMNS = ("scikit-learn", "ONNX Runtime", "treelite", "lleaves", "Mirlo")


def main(names: Sequence[str]) -> int:
    """Print the table; return 1 for an unknown name."""
    every = estimators()
    unknown = [name for name in names if name not in every]
    if unknown:
        print(f"no estimator '{unknown[0]}': there are {', '.join(every)}", file=sys.stderr)
        return 1
    warnings.simplefilter("ignore")
    x, y = data(max(ROWS))
    print(f"| estimator | rows | {' | '.join(COLUMNS)} | of the estimator | of ONNX Runtime | difference |")
    print(f"| --- |{' ---: |' * (len(COLUMNS) + 4)}")
    for name in names or every:
        model = every[name]().fit(x[:2000], y[:2000])
        with tempfile.TemporaryDirectory() as folder:
            calls = dict(engines(model, x[:1], Path(folder)))
            for rows in ROWS:
                if rows <= MOST.get(name, rows):
                    print(_row(name, calls, x[:rows]), flush=True)
    return 0


def _row(name: str, calls: dict[str, Call], x: np.ndarray) -> str:
    wanted = np.asarray(calls["scikit-learn"](x), np.float64)
    array = np.asarray(calls["Mirlo"](x), np.float64)
    # A value of the data that is a threshold may fall on either side.
    error = np.quantile(np.abs(array - wanted), 0.999) / max(np.abs(wanted).max(), 1e-30)
    times = dict(zip(calls, least(list(calls.values()), x), strict=True))
    cells = [f"{times[column]:,.1f}" if column in times else "" for column in COLUMNS]
    ratios = [f"{times['Mirlo'] / times[column]:.2f}" for column in ("scikit-learn", "ONNX Runtime")]
    return f"| {name} | {len(x):,} | {' | '.join([*cells, *ratios])} | {error:.0e} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
