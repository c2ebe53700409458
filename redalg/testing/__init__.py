"""Judges for forms: laws, error bounds derived from a plan, random specs with known verdicts, Hypothesis strategies.

* `redalg.testing.laws`: what must hold of a form on any stream, as values.
* `redalg.testing.bounds`: how far a float result may lie from the definition, computed by running error analysis.
* `redalg.testing.simulate`: the laws of a plan run in any arithmetic (rationals, 60 digits, balls).
* `redalg.testing.generator`, `bodies`: random specs whose verdict, and where possible rank, is known by construction.
* `redalg.testing.strategies`: all of that for Hypothesis, which only this module imports.

Nothing here is shared with the engine or the evaluators it judges. Import the modules you need; this one loads nothing.
"""
