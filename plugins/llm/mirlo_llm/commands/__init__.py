"""The commands `mirlo generate`, `chat`, `perplexity`, `embed`, `transcribe` and `serve`."""
