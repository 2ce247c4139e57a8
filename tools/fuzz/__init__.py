"""Random models and broken files, which find bugs before users do: `mirlo fuzz`."""
