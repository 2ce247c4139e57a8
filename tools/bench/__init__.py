"""`mirlo bench`: models timed beside other compilers and libraries, in turns, and beside what the machine can do."""
