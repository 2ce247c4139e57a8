"""Images in prompts: files, their preparation for a model, and their tokens."""
