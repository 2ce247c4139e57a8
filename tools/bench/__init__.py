"""`mirlo bench`: models timed against other compilers and libraries, interleaved, and against the machine's limits."""
