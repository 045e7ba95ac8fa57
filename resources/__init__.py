"""What assets use: the store, codec weights and work processes."""
