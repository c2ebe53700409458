"""Arrays of a call, code to machine code, the driver, and what is kept on disk."""
