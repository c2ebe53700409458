"""The words of the text grammar; a tensor cannot have one as its name."""

from __future__ import annotations

UNARY_WORDS = (
    "exp log sqrt abs sign relu sigmoid tanh log1p expm1 erf erfc "
    "sin cos tan sinh cosh asin acos atan asinh acosh atanh floor ceil conj re im"
).split()
MAP_WORDS = [*UNARY_WORDS, "where", "cast", "maximum", "minimum", "eq", "ne"]
REDUCTION_WORDS = "sum prod max min mean any all argmax argmin logsumexp topk reduce".split()
CONSTANT_WORDS = "oo nan pi true false".split()
STATEMENT_WORDS = "return tensors order empty monoid".split()
RESERVED = frozenset(
    [*MAP_WORDS, *REDUCTION_WORDS, *CONSTANT_WORDS, *STATEMENT_WORDS, "index", "size", "and", "or", "not"]
)
