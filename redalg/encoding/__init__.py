"""States as data: what an accumulator holds as bytes, as a flat dict of arrays and as an Arrow record batch."""
