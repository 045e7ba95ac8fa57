"""Results: what a measuring command wrote, kept in the store, published, shown on pages."""
