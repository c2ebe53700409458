"""Forms as NumPy programs in readable Python, and the names of printed source."""
