"""``python -m redalg``."""

from redalg.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
