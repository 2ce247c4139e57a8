"""Language models in their published form: weights in safetensors, described by a `config.json`."""
