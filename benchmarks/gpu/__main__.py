"""Run `python -m benchmarks.gpu`."""

from benchmarks.gpu.kernels import main

raise SystemExit(main())
