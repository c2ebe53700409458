"""What graphs evaluate to: floating point, integers and exact numbers, the arrays of a call, the definition."""
