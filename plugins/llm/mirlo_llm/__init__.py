"""Language models, speech, embeddings and a server: `mirlo.generate`, `mirlo.serve`, `mirlo.ray`."""
