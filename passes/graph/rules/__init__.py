"""Rules of `simplify` and `convert-layout`: one file per topic."""
