"""Points at which an obligation fails: both sides enclosed at exact points."""
