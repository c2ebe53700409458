"""From a plan and dtypes to a program."""
