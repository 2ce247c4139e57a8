"""optimum: texts of a small model, with and without a cache and IO binding; classes, and a sequence to sequence."""

import tempfile

import numpy as np
import torch
from inputs import tell
from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForFeatureExtraction
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
decoder = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4)).eval()
encoder = BertModel(
    BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
).eval()
prompt = torch.tensor([[5, 17, 33, 2], [9, 9, 60, 41]])
mask = torch.ones_like(prompt)
answers = {}
with tempfile.TemporaryDirectory() as folder:
    decoder.save_pretrained(f"{folder}/decoder")
    encoder.save_pretrained(f"{folder}/encoder")
    for binding in (False, True):
        model = ORTModelForCausalLM.from_pretrained(f"{folder}/decoder", export=True, use_io_binding=binding)
        settings = {"max_new_tokens": 12, "pad_token_id": 0, "eos_token_id": None}
        words = model.generate(input_ids=prompt, attention_mask=mask, do_sample=False, **settings)
        beams = model.generate(input_ids=prompt, attention_mask=mask, num_beams=3, **settings)
        logits = model(input_ids=prompt, attention_mask=mask).logits
        answers[f"words {binding}"], answers[f"beams {binding}"] = words.tolist(), beams.tolist()
        answers[f"logits {binding}"] = np.asarray(logits.detach())
        features = ORTModelForFeatureExtraction.from_pretrained(
            f"{folder}/encoder", export=True, use_io_binding=binding
        )
        answers[f"features {binding}"] = np.asarray(features(input_ids=prompt, attention_mask=mask)[0].detach())
tell(**answers)
