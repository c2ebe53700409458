"""``python -m redalg``."""

from redalg.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
