"""Run `python -m benchmarks.accuracy`."""

from benchmarks.accuracy.cells import main

raise SystemExit(main())
