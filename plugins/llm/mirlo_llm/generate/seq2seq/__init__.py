"""Models that read one text and write another: translations, summaries, answers."""
