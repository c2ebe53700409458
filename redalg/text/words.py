"""The words of the text grammar; a tensor cannot have one as its name."""

from __future__ import annotations

from redalg.graph.functions import FUNCTIONS

UNARY_WORDS = sorted({"sqrt", *(row.name for row in FUNCTIONS.values() if row.word)})
MAP_WORDS = [*UNARY_WORDS, "where", "cast", "maximum", "minimum", "eq", "ne"]
REDUCTION_WORDS = "sum prod max min mean any all argmax argmin logsumexp topk reduce".split()
CONSTANT_WORDS = "oo inf nan pi true false".split()
STATEMENT_WORDS = "return tensors order empty dtype monoid".split()
RESERVED = frozenset(
    [*MAP_WORDS, *REDUCTION_WORDS, *CONSTANT_WORDS, *STATEMENT_WORDS, "index", "size", "and", "or", "not"]
)
