"""How a stage separates into what depends on the element and what depends on stage values."""
