"""sentence-transformers: sentences as rows, by a small model that it exports to ONNX."""

import tempfile
from pathlib import Path

import torch
from inputs import tell
from sentence_transformers import SentenceTransformer, models
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "a",
    "cat",
    "dog",
    "house",
    "sleeps",
    "runs",
    "in",
    "under",
    "near",
    "river",
    "old",
    "new",
    "and",
]
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    vocabulary = Path(folder) / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    BertTokenizerFast(str(vocabulary)).save_pretrained(f"{folder}/bert")
    BertModel(
        BertConfig(
            vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        )
    ).save_pretrained(f"{folder}/bert")
    words = models.Transformer(f"{folder}/bert")
    SentenceTransformer(modules=[words, models.Pooling(32), models.Normalize()]).save(f"{folder}/sentences")
    model = SentenceTransformer(f"{folder}/sentences", backend="onnx", device="cpu")
    rows = model.encode(["the cat sleeps in the house", "a dog runs near the river", "an unknown word", ""])
    tell(rows=rows, alike=model.similarity(rows, rows).numpy())
