"""The host's side of runners: programs in C that run models on boards without Python."""
