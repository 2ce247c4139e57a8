"""Language models in GGUF: weights, configuration, tokenizer and chat template in one file."""
