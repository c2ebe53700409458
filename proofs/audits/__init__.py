"""Audits of operators somebody else wrote: laws searched for counterexamples."""
