"""Tables: groups of runs as rows of numbers, in every format, and beside what papers printed."""
