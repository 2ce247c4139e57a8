"""An embedding model or a reranker from a folder or a GGUF file: compiled, with its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo import compile as compile_model
from mirlo.extend.options import refuse_unknown
from mirlo.extend.runtime import Executable
from mirlo_llm.generate.checkpoints.deferred import deferred_graph
from mirlo_llm.generate.checkpoints.safetensors import checkpoint_files
from mirlo_llm.generate.code_options import DEFAULT, TRANSFORMERS, CodeOptions
from mirlo_llm.generate.config import require_folder
from mirlo_llm.generate.embedding.config import EmbeddingConfig, read_embedding_config
from mirlo_llm.generate.embedding.pooling import POOLINGS
from mirlo_llm.generate.errors import GenerationError, ModelFolderError, require_executable
from mirlo_llm.generate.gguf.container import GgufFile, is_gguf
from mirlo_llm.generate.gguf.embedding import import_gguf_encoder, is_encoder_file
from mirlo_llm.generate.json_file import is_count, read_json
from mirlo_llm.generate.model import FORWARDED
from mirlo_llm.generate.tokenizer import FILE, ModelTokenizer, read_tokenizer
from mirlo_llm.generate.traced.sources import is_traced, traced_sources

if TYPE_CHECKING:
    from mirlo.extend.frontend import ImportedModule

TOKENS, MASK, KINDS = "input_ids", "attention_mask", "token_type_ids"
STATES = ("last_hidden_state", "token_embeddings")
EMBEDDING, LOGITS = "sentence_embedding", "logits"
OWN_OPTIONS = ("pooling", "normalize", "mapped", "model_impl", "trust_remote_code")
DEFAULT_BATCH = 32
_LEAST_LENGTH = 1e-12


class EmbeddingModel:
    """A compiled model that returns embeddings or scores of texts."""

    def __init__(self, config: EmbeddingConfig, executable: Executable) -> None:
        self.config, self.executable = config, executable
        files = read_tokenizer(config)
        if files is None:
            missing = f"{config.folder}: there is no {FILE}" if config.gguf is None else f"{config.model}: no tokenizer"
            raise ModelFolderError(f"{missing}, which texts need")
        self.tokenizer = ModelTokenizer(*files)
        self._inputs = [spec.name for spec in executable.inputs]
        outputs = {spec.name: len(spec.shape) for spec in executable.outputs}
        others = set(self._inputs) - {TOKENS, MASK, KINDS}
        if TOKENS not in self._inputs or others:
            raise ModelFolderError(
                f"{config.model}: expected inputs {TOKENS}, {MASK} and {KINDS}, found {', '.join(self._inputs)}"
            )
        states = [name for name, rank in outputs.items() if name in STATES or rank == 3]
        self._output = next((name for name in (LOGITS, EMBEDDING, *states) if name in outputs), "")
        if not self._output:
            raise ModelFolderError(
                f"{config.model}: expected an output {LOGITS}, {EMBEDDING} or {STATES[0]}, found {', '.join(outputs)}"
            )

    @property
    def is_reranker(self) -> bool:
        """Return whether the model scores pairs of texts."""
        return self._output == LOGITS

    def encode(self, text: str, other: str | None = None, *, truncate: bool = False) -> tuple[list[int], list[int]]:
        """Return the tokens of a text or a pair, and for each token the text, 0 or 1, that it belongs to.

        A text that is longer than the model takes is an error; with `truncate` its end is left out.
        """
        longest = self.config.longest
        tokens, kinds = self.tokenizer.encode_pair(text, other, longest if truncate and longest else None)
        if longest and len(tokens) > longest:
            raise GenerationError(
                f"a text has {len(tokens)} tokens, the model takes up to {longest}: {text[:40]!a}...; "
                "divide it, or leave out its end: truncate=True, --truncate"
            )
        if not tokens:
            raise GenerationError(f"a text has no tokens: {text[:40]!a}")
        return tokens, kinds

    def embed(
        self,
        texts: Sequence[str] | str,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        batch: int = DEFAULT_BATCH,
        truncate: bool = False,
    ) -> np.ndarray:
        """Return a row of f32 for each text, [texts, width]; of one text, a row.

        Texts begin with `prompt`, or with what the folder calls `prompt_name`, such as "query"; without both, with the
        folder's own default. `dimensions` keeps the first elements, for models that are trained for it.
        """
        if self.is_reranker:
            what = "the model scores pairs of texts: call score(query, documents)"
            raise GenerationError(f"{self.config.folder}: {what}")
        listed = [texts] if isinstance(texts, str) else texts
        before = self.prompt(prompt, prompt_name)
        tokens = [self.encode(before + text, truncate=truncate)[0] for text in listed]
        rows = self.embed_tokens(tokens, dimensions, batch)
        return rows.reshape(-1) if isinstance(texts, str) else rows

    def embed_tokens(
        self, texts: Sequence[Sequence[int]], dimensions: int | None = None, batch: int = DEFAULT_BATCH
    ) -> np.ndarray:
        """Return a row of f32 for each text, given as tokens."""
        return self.finished(self.rows_of([(tokens, [0] * len(tokens)) for tokens in texts], batch), dimensions)

    def finished(self, rows: np.ndarray, dimensions: int | None = None) -> np.ndarray:
        """Return the first elements of the model's rows, of length 1 if the folder says so."""
        if dimensions is not None:
            if not is_count(dimensions, 1, rows.shape[-1]):
                raise GenerationError(f"dimensions: expected 1 to {rows.shape[-1]}, found {dimensions!r:.40}")
            rows = rows[:, :dimensions]
        return np.ascontiguousarray(_of_length_1(rows) if self.config.is_normalized else rows)

    def score(
        self, query: str, documents: Sequence[str], *, batch: int = DEFAULT_BATCH, truncate: bool = False
    ) -> np.ndarray:
        """Return a score for each document: of a reranker from 0 to 1, else the cosine of the embeddings.

        An embedding model begins with its prompts for "query" and "document", if it has such.
        """
        if not documents:
            return np.zeros(0, np.float32)
        if self.is_reranker:
            return self.scores_of(self.rows_of([self.encode(query, x, truncate=truncate) for x in documents], batch))
        before, prompt = self.prompts_of_search()
        asked = self.embed([query], prompt=before, batch=batch, truncate=truncate)
        return self.cosines(asked[0], self.embed(documents, prompt=prompt, batch=batch, truncate=truncate))

    def scores_of(self, rows: np.ndarray) -> np.ndarray:
        """Return a score from 0 to 1 for each row of a reranker."""
        if rows.shape[1] != 1:
            raise GenerationError(
                f"{self.config.folder}: the model gives {rows.shape[1]} scores a pair, a reranker gives one"
            )
        result: np.ndarray = np.exp(-np.logaddexp(np.float32(0), -rows[:, 0]))
        return result

    def prompts_of_search(self) -> tuple[str, str]:
        """Return the prompts of queries and of documents: those of these names, or the folder's default."""
        before, prompt = (
            self.prompt(name=name if name in self.config.prompts else None) for name in ("query", "document")
        )
        return before, prompt

    @staticmethod
    def cosines(query: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return the cosine of a row with each of others."""
        result: np.ndarray = _of_length_1(documents) @ _of_length_1(query[None])[0]
        return result

    def prompt(self, prompt: str | None = None, name: str | None = None) -> str:
        """Return the prefix of texts."""
        if prompt is not None and name is not None:
            raise GenerationError("prompt, prompt_name: texts begin with one of them")
        if prompt is not None:
            return prompt
        prompts, name = self.config.prompts, name or self.config.default_prompt
        if name is None:
            return ""
        if name not in prompts:
            known = ", ".join(prompts) or "none"
            raise GenerationError(f"prompt_name: the folder has no prompt {name!a:.40}; it has: {known}")
        return prompts[name]

    def rows_of(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]], batch: int = DEFAULT_BATCH) -> np.ndarray:
        """Return the model's row for each text, given as tokens and the text, 0 or 1, of each token.

        Texts of similar lengths are computed together.
        """
        if not is_count(batch, 1, 1 << 20):
            raise GenerationError(f"batch: expected a number of texts, found {batch!r:.40}")
        if not texts:
            raise GenerationError("there are no texts")
        vocabulary, longest = self.config.vocabulary, max(len(tokens) for tokens, _ in texts)
        if self.config.longest and longest > self.config.longest:
            raise GenerationError(f"a text has {longest} tokens, the model takes up to {self.config.longest}")
        largest = max(max(tokens, default=vocabulary) for tokens, _ in texts)
        if largest >= vocabulary:
            raise GenerationError(f"tokens: expected numbers below {vocabulary} for each text, found {largest}")
        order = sorted(range(len(texts)), key=lambda i: len(texts[i][0]))
        result: np.ndarray | None = None
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            rows = self._run_together([texts[i] for i in chosen])
            if result is None:
                result = np.empty((len(texts), rows.shape[1]), np.float32)
            result[chosen] = rows
        assert result is not None
        return result

    def _run_together(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> np.ndarray:
        length = max(len(tokens) for tokens, _ in texts)
        inputs = {name: np.zeros((len(texts), length), np.int64) for name in (TOKENS, MASK, KINDS)}
        for i, (tokens, kinds) in enumerate(texts):
            count = len(tokens)
            inputs[TOKENS][i, :count], inputs[MASK][i, :count], inputs[KINDS][i, :count] = tokens, 1, kinds
        np.minimum(inputs[KINDS], 1, out=inputs[KINDS])
        output = self.executable.run({name: inputs[name] for name in self._inputs})[self._output]
        rows = output.astype(np.float32, copy=False)
        if rows.ndim == 3:
            rows = np.concatenate([POOLINGS[each](rows, inputs[MASK]) for each in self.config.poolings], 1)
        if self._output == LOGITS:
            return rows
        for step in self.config.dense:
            rows = step(rows)
        return rows

    def __repr__(self) -> str:
        kind = "reranker" if self.is_reranker else "embedding"
        return f"<EmbeddingModel {self.config.kind} ({kind}) of {self.config.folder}: {self.executable.memory}>"


def _of_length_1(rows: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("bw,bw->b", rows, rows))[:, None]
    result: np.ndarray = rows / np.maximum(lengths, _LEAST_LENGTH)
    return result


def load(
    folder: str | os.PathLike[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    mapped: bool = False,
    model_impl: str = DEFAULT.model_impl,
    trust_remote_code: bool = DEFAULT.trust_remote_code,
    **options: Any,
) -> EmbeddingModel:
    """Compile the embedding model of a folder or of a GGUF file, or the reranker of a folder.

    `options` are those of `mirlo.compile`.

    The files of sentence-transformers say how the rows of a text's tokens become one: `pooling` and `normalize` replace
    that. A folder without them is read as an encoder with the mean of the rows. `mapped` weights stay in the file.

    `model_impl` and `trust_remote_code` are as in `mirlo.generate.load`.
    """
    code = CodeOptions(model_impl, trust_remote_code)
    refuse_unknown("mirlo.generate.load_embedding", list(options), [*OWN_OPTIONS, *FORWARDED])
    path = Path(folder)
    path = path if is_gguf(path) else require_folder(folder, "an embedding model")
    config = read_embedding_config(path, pooling, normalize)
    compiled = compile_model(_graph_of(config, code) if config.is_checkpoint else config.model, **options)
    executable = require_executable(compiled, config.model)
    return EmbeddingModel(config, executable if mapped else executable.resident())


def _graph_of(config: EmbeddingConfig, code: CodeOptions) -> ImportedModule:
    """Build the graph of a model whose file has weights only."""
    file = config.gguf
    if file is not None:
        return deferred_graph(lambda: _graph_of_gguf(config.model, file), lambda: [config.model], "embedding")
    root = read_json(config.source)
    is_own = config.is_encoder and code.model_impl != TRANSFORMERS
    own, use = ([], "") if is_own or not is_traced(root, code) else traced_sources(root, code)

    def make() -> ImportedModule:
        if is_own:
            from mirlo_llm.generate.checkpoints.encoder import import_encoder

            return import_encoder(config.model, config.source)
        if use:
            from mirlo_llm.generate.traced.encoder import import_traced_encoder

            return import_traced_encoder(config.model, config.source, code.trust_remote_code)
        from mirlo_llm.generate.checkpoints.decoder import import_hidden_states

        return import_hidden_states(config.model, config.source)

    files = [config.source, *checkpoint_files(config.model), *own]
    return deferred_graph(make, lambda: files, f"embedding {use}".strip())


def _graph_of_gguf(path: Path, file: GgufFile) -> ImportedModule:
    if is_encoder_file(file):
        return import_gguf_encoder(path, file)
    from mirlo_llm.generate.gguf.decoder import import_gguf_hidden_states

    return import_gguf_hidden_states(path, file)
