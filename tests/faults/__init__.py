"""Protocol tests: real processes, real Lance, real kills."""
