"""Encoder-decoder models of text: translation, summarization, question answering."""
