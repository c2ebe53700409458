"""Why there is no form: refusals and their witnesses, numbers that anyone can recompute."""
