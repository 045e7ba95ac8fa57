"""How well speech is understood, and what a difference between two of them is worth."""
