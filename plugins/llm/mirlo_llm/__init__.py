"""Language models, speech, embeddings and a server of Mirlo: `mirlo.generate`, `mirlo.serve`, `mirlo.ray`."""
