"""Programs: what lies between a plan and source text, the arrays they read, their schedules, and their checks."""

from redalg._moved import contents

__getattr__ = contents(__name__)
