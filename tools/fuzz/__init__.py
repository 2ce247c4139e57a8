"""Random models and broken files, to find what is wrong before users do: `mirlo fuzz`."""
