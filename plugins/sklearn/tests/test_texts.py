"""Text pipelines as skl2onnx writes them, and encoders that refuse values of unknown categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo

pytest.importorskip("skl2onnx", reason="needs skl2onnx: make test-sklearn")
pytest.importorskip("sklearn", reason="needs scikit-learn: make test-sklearn")
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

TEXTS = ["the quick brown fox", "jumps over the lazy dog", "Fox and dog are friends", "lazy quick dog jumps"]


@pytest.mark.parametrize(
    "vectorizer",
    [
        TfidfVectorizer(),
        CountVectorizer(ngram_range=(1, 2)),
        CountVectorizer(analyzer="char", ngram_range=(2, 3)),
        TfidfVectorizer(sublinear_tf=True, stop_words=["the"], lowercase=False),
    ],
    ids=["words", "pairs", "letters", "stopwords"],
)
def test_vectorizers_of_texts(vectorizer: Any) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    pipeline = make_pipeline(vectorizer, LogisticRegression()).fit(TEXTS, [0, 1, 0, 1])
    kinds = [("x", skl2onnx.common.data_types.StringTensorType([None, 1]))]
    model = skl2onnx.to_onnx(pipeline, initial_types=kinds, target_opset=18, options={"zipmap": False})
    label, found = mirlo.compile(model)(np.array([[text] for text in TEXTS]))
    np.testing.assert_array_equal(label, pipeline.predict(TEXTS))
    np.testing.assert_allclose(found, pipeline.predict_proba(TEXTS), rtol=1e-5)


def ngrams_of(shape: list[Any], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.STRING, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("shape, dims", [(["t"], (6,)), (["n", "t"], (2, 6)), ([1, 6], (1, 6))])
def test_ngrams_of_words(mode: str, shape: list[Any], dims: tuple[int, ...]) -> None:
    """Words outside of the pool are in no n-gram; a word of the pool may be in several."""
    model = ngrams_of(
        shape, mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=1, ngram_counts=[0, 3],
        ngram_indexes=[0, 2, 4, 1, 3], weights=[1.0, 2.0, 0.5, 3.0, 4.0],
        pool_strings=["a", "b", "c", "a", "b", "b", "c"],
    )  # fmt: skip
    x = np.random.default_rng(0).choice(["a", "b", "c", "dd"], dims).astype(object)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(mirlo.compile(model)(x), expected)


@pytest.mark.parametrize("element", [TensorProto.INT64, TensorProto.STRING])
def test_a_category_that_is_none(element: int) -> None:
    """With `zeros` = 0, an unknown category is an error, as in ONNX Runtime."""
    is_text = element == TensorProto.STRING
    keys: dict[str, Any] = {"cats_strings": ["3", "1", "2"]} if is_text else {"cats_int64s": [3, 1, 2]}
    node = helper.make_node("OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml", zeros=0, **keys)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", element, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    f, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    x = np.array([1, 3, 3, 2]).astype(object if is_text else np.int64)
    x = x.astype(str).astype(object) if is_text else x
    np.testing.assert_array_equal(f(x), oracle.run(None, {"x": x})[0])
    other = np.array(["1", "4"], object) if is_text else np.array([1, 4])
    with pytest.raises(mirlo.MirloError, match="a value is of no category, which is an error as 'zeros' is 0"):
        f(other)
