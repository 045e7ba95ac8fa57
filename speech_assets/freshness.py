"""How old a measurement may become before the UI says so."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

# Dagster 1.13.27 looks at an asset as a whole: it is as fresh as the newest partition's
# materialization. That one preset was left out shows in the ticks of `weekly_rebenchmark`.
MEASURED_LATELY = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(days=30), warn_window=timedelta(days=14)
)
"""Of what `weekly_rebenchmark` renews: a week was missed, then three more."""
