"""Encoders of texts and models of speech beside transformers, with random weights.

python plugins/llm/benchmarks/text_models.py [--threads N] [NAME ...]

`encoder-small` and `encoder-base` embed texts of several numbers and lengths; `speech-base` reads a window of 30 s and
writes 60 tokens. A line has the medians of calls in turns, and their ratio. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mirlo_llm import generate
from mirlo_llm.generate.sequences import Sequences

from mirlo.benchmarks.turns import take_turns

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ENCODERS = {
    "encoder-small": {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6},
    "encoder-base": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12},
}
TEXTS = ((1, 16), (8, 64), (32, 64), (8, 256))
"""Texts of a call, and tokens of each."""
SPEECH = "speech-base"
TOKENS = 60


def show(name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> None:
    """Call both in turns, and print a line."""
    turns = take_turns([ours, theirs], rounds)
    mine, other = turns.milliseconds
    print(f"{name:34} {mine:9.1f} ms {other:9.1f} ms {turns.ratio(0, 1):6.2f}", flush=True)


def encoder(name: str, folder: Path, threads: int) -> None:
    """Compare embeddings of texts."""
    import torch
    import transformers

    heads = ENCODERS[name]["hidden_size"] // 64
    config = transformers.BertConfig(vocab_size=30522, num_attention_heads=heads, **ENCODERS[name])
    reference = transformers.BertModel(config, add_pooling_layer=False).eval()
    reference.save_pretrained(folder)
    runpy.run_path(str(EXAMPLES / "tiny_encoder.py"))["write_tokenizer"](folder)
    model = generate.load_embedding(folder, threads=threads)
    for count, length in TEXTS:
        texts = np.random.default_rng(0).integers(4, 30000, (count, length)).tolist()
        tokens = torch.tensor(texts)

        def theirs(tokens: Any = tokens) -> np.ndarray:
            with torch.inference_mode():
                rows = reference(tokens).last_hidden_state.mean(1)
                result: np.ndarray = torch.nn.functional.normalize(rows).numpy()
            return result

        def ours(texts: Any = texts) -> np.ndarray:
            return model.embed_tokens(texts)

        np.testing.assert_allclose(ours(), theirs(), atol=1e-5)
        show(f"{name}, {count} of {length} tokens", ours, theirs, 5)


def speech(folder: Path, threads: int) -> None:
    """Compare the encoder and the decoder of a model of speech."""
    import torch
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=51865, d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
        encoder_attention_heads=8, decoder_attention_heads=8, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    reference = transformers.WhisperForConditionalGeneration(config).eval()
    reference.save_pretrained(folder)
    defaults = {"decoder_start_token_id": 50258, "eos_token_id": 50257, "no_timestamps_token_id": 50363}
    (folder / "generation_config.json").write_text(json.dumps(defaults), encoding="utf-8")
    runpy.run_path(str(EXAMPLES / "tiny_speech_model.py"))["write_tokenizer"](folder)
    model = generate.load_speech(folder, threads=threads)
    spectrum = np.random.default_rng(0).standard_normal((80, 3000)).astype(np.float32)
    features = torch.from_numpy(spectrum)[None]
    with torch.inference_mode():
        show(f"{SPEECH}, 30 s", lambda: model._states(spectrum), lambda: reference.model.encoder(features), 4)
        states, decoder = reference.model.encoder(features), model._states(spectrum)

        def theirs() -> list[int]:
            tokens, cache, new = list[int](), None, [50258]
            for _ in range(TOKENS):
                result = reference(
                    encoder_outputs=states, decoder_input_ids=torch.tensor([new]), past_key_values=cache, use_cache=True
                )
                cache, new = result.past_key_values, [int(result.logits[0, -1].argmax())]
                tokens += new
            return tokens

        def ours() -> list[int]:
            sequence = Sequences(decoder, 1, 1)
            (written,) = sequence.tokens
            written.append(50258)
            for _ in range(TOKENS):
                written.append(int(sequence.logits()[0].argmax()))
            return written[1:]

        if ours() != theirs():
            print(f"{SPEECH}: the tokens differ")
        show(f"{SPEECH}, {TOKENS} tokens", ours, theirs, 3)


def main() -> None:
    """Run the comparisons."""
    names = (*ENCODERS, SPEECH)
    parser = argparse.ArgumentParser(prog="python plugins/llm/benchmarks/text_models.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *names], help=f"of {', '.join(names)}")
    parser.add_argument("--threads", type=int, default=1, help="threads of both (%(default)s)")
    arguments = parser.parse_args()
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"{'':34} {'Mirlo':>12} {'transformers':>12} {'ratio':>6}")
    for name in arguments.names or names:
        with tempfile.TemporaryDirectory() as folder:
            if name == SPEECH:
                speech(Path(folder), arguments.threads)
            else:
                encoder(name, Path(folder), arguments.threads)


if __name__ == "__main__":
    main()
