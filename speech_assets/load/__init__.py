"""Load tests of a served preset, and the ladder of its switches: rules, charts and tables."""
