"""The tokenizer of a GGUF file, in the format of the package `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from mirlo_llm.generate.gguf.container import GgufFile
from mirlo_llm.generate.gguf.keys import CONTROL, special_token
from mirlo_llm.generate.json_file import JsonObject

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

PREFIX = "tokenizer.ggml."
MODEL, PRE, TOKENS = f"{PREFIX}model", f"{PREFIX}pre", f"{PREFIX}tokens"
Pair: TypeAlias = tuple[str, str]
MAX_TOKENS = 1 << 20
MAX_TOKEN = 512
"""Most characters of a token for which merges are derived: the cost grows with the square."""
UNKNOWN, USER_DEFINED, BYTE = 2, 4, 6
"""Token types: unknown, user-defined (always one token), byte."""
SPACE = "\u2581"
"""SentencePiece's symbol for a space."""
INNER, WORD_PIECES = "##", "bert"
"""The mark of pieces inside of words, and the name of their tokenizer in files."""
SEPARATOR = "seperator"
"""The key of the token between two texts, as the format spells it."""
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|\p{{N}}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_SPLITS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("gpt-2", "default", "olmo", "mpt", "phi-2", "jais", "trillion", "granite-docling"), (_GPT2,)),
    (("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), (_WORDS % "{1,3}",)),
    (("dbrx", "smaug-bpe"), (_WORDS % "{1,3}",)),
    (("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "kormo"), (_WORDS % "",)),
    (("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"), (r"\p{N}", _GPT2)),
    (("tekken",), (_CASES % ("", "", ""),)),
    (("gpt-4o", "llama4"), (_CASES % (_SUFFIXES, _SUFFIXES, "{1,3}"),)),
)
"""Regular expressions that split a text, applied in order, by the file's name of the rule."""
_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "tekken")
"""Rules under which words that are tokens are not split."""


def tokenizer_json(file: GgufFile) -> bytes | None:
    """Return the tokenizer of a file in the format of `tokenizer.json`; None if it has none."""
    metadata = file.metadata
    kind = metadata.text(MODEL, "none")
    if kind in ("none", "no_vocab"):
        return None
    if kind not in _KINDS:
        expected = f"expected one of {', '.join(_KINDS)}"
        raise metadata.refuse(MODEL, f"{expected}, found '{kind:.40}': pass tokens in place of text")
    tokens = metadata.value(TOKENS)
    if not isinstance(tokens, list) or not tokens or not all(isinstance(each, str) for each in tokens):
        raise metadata.fail(TOKENS, "an array of texts", tokens)
    if len(tokens) > MAX_TOKENS:
        raise metadata.refuse(TOKENS, f"expected up to {MAX_TOKENS} tokens, found {len(tokens)}")
    for name in ("bos", "eos", "cls", SEPARATOR):
        token = special_token(file, name)
        if token is not None and token >= len(tokens):
            raise metadata.refuse(f"{PREFIX}{name}_token_id", f"there are {len(tokens)} tokens, found {token}")
    texts = _unique([_word_piece(str(each)) for each in tokens] if kind == WORD_PIECES else tokens)
    model = _KINDS[kind](metadata, texts)
    added = [
        {
            "id": i, "content": texts[i], "special": role == CONTROL, "normalized": False, "single_word": False,
            "lstrip": False, "rstrip": False,
        }
        for i, role in enumerate(_numbers(metadata, "token_type", len(texts)).tolist())
        if role in (CONTROL, USER_DEFINED) and texts[i]
    ]  # fmt: skip
    marks = _marks(file, texts, kind)
    result = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": marks}
    return json.dumps(result | model).encode()


def token_texts(file: GgufFile) -> dict[str, str]:
    """Return the texts of special tokens, by their names in templates."""
    tokens = file.metadata.value(TOKENS)
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    numbers = {name: special_token(file, key) for name, key in names.items()}
    if not isinstance(tokens, list):
        return {}
    return {name: str(tokens[i]) for name, i in numbers.items() if i is not None and i < len(tokens)}


def _unique(tokens: Sequence[Json]) -> list[str]:
    """Return the texts of tokens; a duplicate, which cannot be chosen, gets a unique text."""
    seen: set[str] = set()
    result = []
    for i, token in enumerate(map(str, tokens)):
        text = token if token not in seen else f"{token}\0{i}"
        seen.add(text)
        result.append(text)
    return result


def _numbers(metadata: JsonObject, name: str, count: int) -> np.ndarray:
    """Return an array with one number per token."""
    value = metadata.value(f"{PREFIX}{name}")
    if value is None:
        return np.zeros(count)
    if not isinstance(value, np.ndarray) or len(value) != count or not np.isfinite(value).all():
        raise metadata.fail(f"{PREFIX}{name}", f"{count} finite numbers, one for each token", value)
    numbers: np.ndarray = value
    return numbers


def _sentencepiece(metadata: JsonObject, texts: list[str]) -> dict[str, Json]:
    """Return SentencePiece's model, which first merges the pair whose token has the highest score."""
    scores, kinds = _numbers(metadata, "scores", len(texts)), _numbers(metadata, "token_type", len(texts))
    pieces = {text for text, kind in zip(texts, kinds, strict=True) if kind not in (CONTROL, UNKNOWN, BYTE)}
    merges: list[Pair] = []
    for i in np.argsort(-scores, kind="stable").tolist():
        text = texts[i]
        if text not in pieces:
            continue
        if len(text) > MAX_TOKEN:
            raise metadata.refuse(TOKENS, f"expected up to {MAX_TOKEN} characters, found {len(text)} in token {i}")
        cuts = range(1, len(text))
        merges += [(text[:at], text[at:]) for at in cuts if text[:at] in pieces and text[at:] in pieces]
    unknown = metadata.count(f"{PREFIX}unknown_token_id", 0, most=len(texts) - 1)
    is_prefixed = metadata.flag(f"{PREFIX}add_space_prefix", True)
    spaces: dict[str, Json] = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    start: dict[str, Json] = {"type": "Prepend", "prepend": SPACE}
    back: dict[str, Json] = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip: dict[str, Json] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders: list[Json] = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    return {
        "normalizer": {"type": "Sequence", "normalizers": [start, spaces] if is_prefixed else [spaces]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [*decoders, strip] if is_prefixed else decoders},
        "model": _bpe(texts, merges) | {"byte_fallback": True, "fuse_unk": True, "unk_token": texts[unknown]},
    }


def _byte_pairs(metadata: JsonObject, texts: list[str]) -> dict[str, Json]:
    """Return GPT-2's model: byte-level BPE with the file's merges."""
    name = metadata.text(PRE, "default")
    split = next((patterns for names, patterns in _SPLITS if name in names), None)
    if split is None:
        known = ", ".join(name for names, _ in _SPLITS for name in names)
        raise metadata.refuse(PRE, f"expected one of {known}, found '{name:.40}': pass tokens in place of text")
    pairs = metadata.value(f"{PREFIX}merges")
    if not isinstance(pairs, list) or not all(isinstance(each, str) for each in pairs):
        raise metadata.fail(f"{PREFIX}merges", "an array of texts", pairs)
    known_texts, merges = set(texts), list[Pair]()
    for i, text in enumerate(map(str, pairs)):
        left, _, right = text.partition(" ")
        if not {left, right, left + right} <= known_texts:
            expected = "expected two tokens that are one together"
            raise metadata.refuse(f"{PREFIX}merges", f"{expected}, found {text!a:.60} at {i}")
        merges.append((left, right))
    is_prefixed = metadata.flag(f"{PREFIX}add_space_prefix", False)
    bytes_: dict[str, Json] = {"type": "ByteLevel", "add_prefix_space": is_prefixed, "trim_offsets": True}
    steps: list[Json] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False} for pattern in split
    ]
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, bytes_ | {"use_regex": False}]},
        "decoder": bytes_ | {"use_regex": True},
        "model": _bpe(texts, merges) | {"ignore_merges": name in _WHOLE_WORDS},
    }


def _bpe(texts: list[str], merges: list[Pair]) -> dict[str, Json]:
    vocabulary: Json = {text: i for i, text in enumerate(texts)}
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
        "merges": cast("Json", merges),
    }  # fmt: skip


def _word_pieces(metadata: JsonObject, texts: list[str]) -> dict[str, Json]:
    """Return BERT's model: the longest pieces of words, from the left; files mark those that begin a word."""
    unknown = metadata.count(f"{PREFIX}unknown_token_id", 100, most=len(texts) - 1)
    vocabulary: Json = {text: i for i, text in enumerate(texts)}
    return {
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": True,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": INNER, "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": texts[unknown], "continuing_subword_prefix": INNER,
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    }  # fmt: skip


def _word_piece(text: str) -> str:
    """Return the text of a piece as `tokenizer.json` has it: those inside of words are marked."""
    if text.startswith("[") and text.endswith("]") and len(text) > 2:  # a special token
        return text
    return text[len(SPACE) :] if text.startswith(SPACE) else f"{INNER}{text}"


_KINDS: dict[str, Callable[[JsonObject, list[str]], dict[str, Json]]] = {
    "llama": _sentencepiece,
    "gpt2": _byte_pairs,
    WORD_PIECES: _word_pieces,
}
"""Builders of the tokenizer's model, by its name in files."""


def _marks(file: GgufFile, texts: list[str], kind: str) -> Json:
    """Return the post-processor that adds tokens before and after a text."""
    marks: dict[str, str] = {}
    is_words = kind == WORD_PIECES
    for name, default, other in (("bos", kind == "llama" or is_words, "cls"), ("eos", is_words, SEPARATOR)):
        token = special_token(file, other) if is_words else None
        token = special_token(file, name) if token is None else token
        if file.metadata.flag(f"{PREFIX}add_{name}_token", default) and token is not None:
            marks[name] = texts[token]
    vocabulary = {text: i for i, text in enumerate(texts)}

    def place(which: int, is_next: bool = False) -> list[Json]:
        sequence: Json = {"Sequence": {"id": "AB"[which], "type_id": which}}
        special: dict[str, Json] = {n: {"SpecialToken": {"id": t, "type_id": which}} for n, t in marks.items()}
        first = None if is_next else special.get("bos")
        return [each for each in (first, sequence, special.get("eos")) if each is not None]

    tokens: dict[str, Json] = {t: {"id": t, "ids": [vocabulary[t]], "tokens": [t]} for t in marks.values()}
    pair = place(0) + place(1, is_words)
    return {"type": "TemplateProcessing", "single": place(0), "pair": pair, "special_tokens": tokens}
