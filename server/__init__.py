"""Token layout, codec and weights, which everything else uses; home of the speech server."""
