"""Tokenizers and chat templates of GGUF files, against `tokenizers` and SentencePiece's rule, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import write_gguf
from mirlo_llm.generate.chat import gguf_template
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import read_gguf
from mirlo_llm.generate.gguf.tokenizer import MAX_TOKEN, tokenizer_json
from mirlo_llm.generate.tokenizer import ModelTokenizer

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
pytest.importorskip("jinja2")

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
CORPUS = (
    "The quick brown fox jumps over the lazy dog's 1234567 tails, isn't it? ",
    "Größe und Übermut — 日本語の文、 ελληνικά  naïve café\n\n\tdef main(argv): return {'x': 0x1F}\r\n",
    "HTTPServer camelCase ALLCAPS don't I'LL we've 3.14159 100000 \U0001f600\U0001f680 …   trailing   ",
)


def texts(seed: int, count: int = 150) -> list[str]:
    """Return texts of parts of the corpus, and of any characters."""
    choose, whole = random.Random(seed), "".join(CORPUS)
    found = ["", " ", "  ", "a   b", "     a    b", "\n", " a", "a ", *CORPUS]
    while len(found) < count:
        at = choose.randrange(len(whole))
        found.append(whole[at : at + choose.randrange(30)] + chr(choose.choice((32, 65, 0xE9, 0x3042, 0x1F980, 10))))
    return found


def write(path: Path, tokens: Any, token_type: Any, **keys: Any) -> ModelTokenizer:
    named = {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    named |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": token_type}
    write_gguf(path, "llama", named, {"t": np.zeros((1, 1), np.float32)})
    content = tokenizer_json(read_gguf(path))
    assert content is not None
    return ModelTokenizer(path, content)


def pieces(seed: int) -> tuple[list[str], list[float], list[int]]:
    """Return a vocabulary of SentencePiece with pieces of the corpus, their scores and types."""
    choose, whole = random.Random(seed), "".join(CORPUS).replace(" ", "\u2581")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    known = [c for c in dict.fromkeys(whole) if choose.random() < 0.9]
    found = dict.fromkeys(known)
    for _ in range(300):
        at = choose.randrange(len(whole))
        found |= dict.fromkeys(whole[at : at + size] for size in range(2, choose.randrange(3, 9)))
    found = {piece: None for piece in found if set(piece) <= set(known)}  # as trained vocabularies are
    tokens += list(found)
    scores = [0.0] * 259 + [-float(i) for i in choose.sample(range(len(found)), len(found))]
    spaces = ["\u2581" * count for count in (2, 3, 4) if "\u2581" * count not in found]  # always one token
    kinds += [NORMAL] * len(found) + [USER] * len(spaces)
    return tokens + spaces, scores + [0.0] * len(spaces), kinds


def sentencepiece(text: str, tokens: list[str], scores: list[float], kinds: list[int]) -> list[int]:
    """Return tokens by SentencePiece's rule: join the neighbours whose piece has the highest score, the first ones."""
    known = {token: i for i, token in enumerate(tokens) if kinds[i] in (NORMAL, USER)}
    parts = list(("\u2581" + text.replace(" ", "\u2581")) if text else "")
    while True:
        pairs = [(-scores[known[a + b]], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in known]  # noqa: B905
        if not pairs:
            break
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    result: list[int] = []
    for part in parts:
        result += [known[part]] if part in known else [3 + byte for byte in part.encode()]
    return result


@pytest.mark.parametrize("seed", range(3))
def test_sentencepiece(seed: int, tmp_path: Path) -> None:
    tokens, scores, kinds = pieces(seed)
    found = write(tmp_path / "a.gguf", tokens, kinds, model="llama", scores=scores, bos_token_id=1, eos_token_id=2)
    for text in texts(seed):
        expected = sentencepiece(text, tokens, scores, kinds)
        assert found.encode(text, special=False) == expected, text
        assert found.encode(text, special=True) == [1, *expected]
        assert found.decode(expected) == text
    assert found.encode("a</s>b", special=False) == [
        *sentencepiece("a", tokens, scores, kinds), 2, *sentencepiece("b", tokens, scores, kinds),
    ]  # fmt: skip
    assert found.decode([1, *sentencepiece("the", tokens, scores, kinds), 2]) == "the"


def test_sentencepiece_without_a_space_before(tmp_path: Path) -> None:
    tokens, scores, kinds = pieces(0)
    options = {"model": "llama", "scores": scores, "bos_token_id": 1, "eos_token_id": 2, "add_space_prefix": False}
    found = write(tmp_path / "a.gguf", tokens, kinds, add_bos_token=False, add_eos_token=True, **options)
    tokens_of_it = found.encode("The quick", special=True)
    assert tokens_of_it[-1] == 2 and found.decode(tokens_of_it) == "The quick"
    assert tokens[tokens_of_it[0]][0] == "T"


def trained(split: Any) -> Any:
    """Return a tokenizer of byte pairs, trained on the corpus."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    result = Tokenizer(models.BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    splits = [pre_tokenizers.Split(tokenizers.Regex(each), "isolated") for each in split or ()]
    result.pre_tokenizer, result.decoder = pre_tokenizers.Sequence([*splits, bytes_]), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    result.train_from_iterator(CORPUS * 4, trainer)
    result.add_special_tokens(["<|end|>", "<|start|>"])
    result.add_tokens(["<tool>"])
    return result


def pattern_of(name: str) -> tuple[str, ...] | None:
    """Return the regular expressions of a tokenizer, as transformers has them."""
    if name == "gpt-2":
        return None  # that of `tokenizers`
    if name == "qwen2":
        from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

        return (str(PRETOKENIZE_REGEX),)
    from transformers.convert_slow_tokenizer import TikTokenConverter

    return (str(TikTokenConverter("").pattern),)


@pytest.mark.parametrize("name", ("gpt-2", "qwen2", "dbrx"))
def test_byte_pairs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import json

    expected = trained(pattern_of(name))
    model = json.loads(expected.to_str())["model"]
    vocabulary = expected.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = [{"<|end|>": CONTROL, "<|start|>": CONTROL, "<tool>": USER}.get(token, NORMAL) for token in tokens]
    merges = [" ".join(pair) for pair in model["merges"]]
    found = write(
        tmp_path / "a.gguf", tokens, kinds, model="gpt2", pre=name, merges=merges, eos_token_id=tokens.index("<|end|>"),
        bos_token_id=tokens.index("<|start|>"), add_bos_token=True,
    )  # fmt: skip
    for text in texts(1):
        made = expected.encode(text + "<tool>x<|end|>").ids
        assert found.encode(text + "<tool>x<|end|>", special=False) == made, text
        assert found.encode(text + "<tool>x<|end|>", special=True) == [tokens.index("<|start|>"), *made]
        assert found.decode(made) == expected.decode(made) == text + "<tool>x"


def test_words_that_are_tokens(tmp_path: Path) -> None:
    """Llama 3 takes a word that is a token although no merges lead to it."""
    tokens = ["a", "b", "c", "ab", "abc"]
    for name, expected in (("llama-bpe", [4]), ("dbrx", [3, 2])):
        found = write(tmp_path / "a.gguf", tokens, [NORMAL] * 5, model="gpt2", pre=name, merges=["a b"])
        assert found.encode("abc", special=False) == expected


def test_all_rules_are_read(tmp_path: Path) -> None:
    from mirlo_llm.generate.gguf.tokenizer import _SPLITS

    alphabet = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "th"]
    for names, _ in _SPLITS:
        found = write(tmp_path / "a.gguf", alphabet, [NORMAL] * 257, model="gpt2", pre=names[0], merges=["t h"])
        for text in CORPUS:
            assert found.decode(found.encode(text, special=False)) == text


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another kind": ({"model": "t5"}, "'tokenizer.ggml.model': expected one of llama, gpt2, bert, found 't5'"),
    "another rule": ({"model": "gpt2", "pre": "no"}, "'tokenizer.ggml.pre': expected one of gpt-2"),
    "no merges": ({"model": "gpt2"}, "'tokenizer.ggml.merges': expected an array of texts"),
    "merges of no tokens": ({"model": "gpt2", "merges": ["a x"]}, "expected two tokens that are one together, found"),
    "too few scores": ({"model": "llama", "scores": [0.5]}, "'tokenizer.ggml.scores': expected 2 finite numbers"),
    "no numbers": ({"model": "llama", "scores": [float("nan")] * 2}, "expected 2 finite numbers"),
    "an unknown token": ({"model": "llama", "unknown_token_id": 7}, "'tokenizer.ggml.unknown_token_id': expected"),
    "a start that is none": ({"model": "llama", "bos_token_id": 7}, "there are 2 tokens, found 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    options, expected = REFUSED[name]
    with pytest.raises(ModelFolderError) as caught:
        write(tmp_path / "a.gguf", ["a", "b"], [NORMAL] * 2, **options)
    assert expected in str(caught.value) and str(tmp_path / "a.gguf") in str(caught.value)


def test_hostile_keys(tmp_path: Path) -> None:
    """A file with other values of its keys gives a tokenizer or is refused with our error."""
    tokens, scores, kinds = pieces(0)
    sound: dict[str, dict[str, Any]] = {
        "llama": {"scores": scores, "bos_token_id": 1, "add_space_prefix": True, "unknown_token_id": 0},
        "gpt2": {"pre": "qwen2", "merges": ["<0x00> <0x01>"], "eos_token_id": 2, "add_bos_token": True},
    }
    values: list[Any] = [0, 7, 2**32 - 1, 1e30, True, "", "\0", [1, 2], [""] * 3, ["a b"], [0.5]]
    for model, options in sound.items():
        for key in (*options, "tokens", "token_type"):
            for value in values:
                given = {"tokens": tokens, "token_type": kinds, **options, "model": model, key: value}
                try:
                    write(tmp_path / "a.gguf", **given).encode("the quick", special=True)
                except ModelFolderError as error:
                    assert str(tmp_path / "a.gguf") in str(error)


def test_long_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=f"expected up to {MAX_TOKEN} characters, found 1000 in token 1"):
        write(tmp_path / "a.gguf", ["a", "b" * 1000], [NORMAL] * 2, model="llama", scores=[0.5, 0.5])


def test_tokens_that_are_there_twice(tmp_path: Path) -> None:
    found = write(tmp_path / "a.gguf", ["a", "b", "a", "ab"], [NORMAL] * 4, model="gpt2", merges=["a b"])
    assert found.encode("baab", special=False) == [1, 0, 3]


def test_templates(tmp_path: Path) -> None:
    """The chat template of a file is rendered in a process of its own, with the texts of special tokens."""

    def template(text: str) -> Any:
        keys = {
            "tokenizer.chat_template": text, "tokenizer.ggml.tokens": ["<s>", "</s>"],
            "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
        }  # fmt: skip
        path = write_gguf(tmp_path / "a.gguf", "llama", keys, {"t": np.zeros((1, 1), np.float32)})
        found = gguf_template(path, read_gguf(path))
        assert found is not None
        return found

    messages = [{"role": "user", "content": "hello"}]
    found = template("{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ eos_token }}")
    assert found.render(messages) == "<s>[user] hello</s>"
    with pytest.raises(ModelFolderError, match=r"a\.gguf: the chat template fails: "):
        template("{{ messages[0].content.x.y }}").render(messages)
    with pytest.raises(ModelFolderError, match="'tokenizer.chat_template': expected up to 1048576 characters"):
        template("a" * (1 << 21))
