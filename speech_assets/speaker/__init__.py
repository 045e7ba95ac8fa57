"""How alike two voices are: a speaker encoder, whose weights come in a package."""
