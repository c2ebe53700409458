"""Generated code of kernels: expressions, imports, dead-code elimination and coarsening of statements."""
