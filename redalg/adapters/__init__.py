"""Forms as what other libraries call: each module imports its library, and is imported by those who ask for it."""
