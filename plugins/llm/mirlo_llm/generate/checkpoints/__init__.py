"""Language models as their makers publish them: weights in safetensors, and a `config.json` that says what they are."""
