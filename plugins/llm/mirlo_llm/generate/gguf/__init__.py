"""Language models in the format GGUF: one file with the weights, what they are, the tokenizer and the chat template."""
