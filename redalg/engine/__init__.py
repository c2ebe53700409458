"""From a spec to a plan: `passes` lists what happens, in order."""
