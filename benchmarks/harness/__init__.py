"""What the benchmarks share: timing with checks, fresh processes, operations, the specs to be refused."""
