"""The Dagster assets: thin functions that decide, record and check."""
