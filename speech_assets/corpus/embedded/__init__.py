"""The embedded corpus: its parquet files, their card, and the recipe they are made by."""
