"""Images in prompts: files, what a model sees of them, and the tokens that stand for it."""
