"""Run `python -m benchmarks.cpu`."""

from benchmarks.cpu.kernels import main

raise SystemExit(main())
