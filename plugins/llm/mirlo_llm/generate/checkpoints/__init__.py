"""Language models as published: weights in safetensors and a `config.json`."""
