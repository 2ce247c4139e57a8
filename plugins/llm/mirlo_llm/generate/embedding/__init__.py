"""Embeddings and scores of texts by encoders, or by decoders with last-token pooling."""
