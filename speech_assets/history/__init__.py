"""Results over time: which may be compared, how their figures vary, and what has become worse."""
