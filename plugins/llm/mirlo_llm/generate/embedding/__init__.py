"""Embeddings and scores of texts: encoders, and decoders whose last states stand for a text."""
