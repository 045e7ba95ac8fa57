"""What assets use: the store, model downloads and worker processes."""
