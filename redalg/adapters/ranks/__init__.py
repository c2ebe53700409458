"""A form over the ranks of a process group: what ranks agree on, states as messages, ways to merge them."""
