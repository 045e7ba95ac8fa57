"""The Dagster assets: thin functions that decide, record and check."""

import warnings

import dagster as dg

# Backfill policies and observations are in wide use and still marked beta; every process that loads
# the definitions would print it. An upgrade of the pinned release is where such marks are read.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
