"""Counterexamples as Hypothesis tests: text that stands alone, with the operator imported or written out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from redalg.proofs.audits.domain import Domain
from redalg.proofs.audits.judge import Operator
from redalg.proofs.audits.source import definition_lines, imported
from redalg.proofs.audits.terms import NAMES, Check, E, Law, Term
from redalg.proofs.audits.values import LARGEST, PRECISION, Array, Layout, Scalar, Several, is_finite, numpy_of

if TYPE_CHECKING:
    from redalg.proofs.audits.search import Found

HELPERS = '''
inf, nan = math.inf, math.nan


def numbers(value):
    """The numbers of a state, in order."""
    if isinstance(value, dict):
        value = [value[k] for k in sorted(value, key=str)]
    elif hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, k) for k in value.__dataclass_fields__]
    elif hasattr(value, "tolist"):
        value = value.tolist()
    return [n for v in value for n in numbers(v)] if isinstance(value, (tuple, list)) else [value]


def attempt(side):
    """What a side of a law gives, or the type of the exception it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return numbers(side())
        except Exception as error:
            return type(error)


def same(left, right, tolerance):
    """Equal up to tolerance times the largest number; states that both hold a NaN are equal."""
    x, y = attempt(left), attempt(right)
    if isinstance(x, type) or isinstance(y, type):
        return isinstance(x, type) and isinstance(y, type)
    if any(v != v for v in x + y):
        return any(v != v for v in x) and any(v != v for v in y)
    scale = max([1, *(abs(v) for v in x + y if abs(v) != inf)])
    return len(x) == len(y) and all(v == w or abs(v - w) <= tolerance * scale for v, w in zip(x, y))


def is_finite(side):
    """A state that is there, without infinities and NaN."""
    x = attempt(side)
    return not isinstance(x, type) and all(abs(v) < inf for v in x)


def has_no_nan(side):
    x = attempt(side)
    return not isinstance(x, type) and all(v == v for v in x)
'''
GROWN = '''
def grown(state, times):
    """A state combined with itself again and again, as long as its numbers are moderate."""
    for _ in range(times):
        found = combine(state, copy.deepcopy(state))
        if not all(v == 0 or 2.0**-END <= abs(v) <= 2.0**END for v in numbers(found)):
            break
        state = found
    return state
'''
JOINED = '''
def joined(*chunks):
    """Chunks one after the other."""
    return {}
'''


def hypothesis_text(op: Operator, name: str, found: Mapping[str, tuple[Law, Found]], imports: str | None = None) -> str:
    """One test per law: its smallest counterexample as an explicit example, and a strategy around it."""
    tests = [
        _test(op, name, law, f, check)
        for law, f in found.values()
        for check in ([f.check] if f.check is not None else law.checks)
    ]
    body = "\n\n\n".join(dict.fromkeys(tests))
    blocks = [[imports.strip()]] if imports is not None else _operator_blocks(op)
    own = [line for block in blocks for line in block if line.startswith(("import ", "from "))]
    rest = ["\n".join(line for line in block if line not in own) for block in blocks]
    end = str(int(math.log2(LARGEST.get(op.dtype, 2.0**1023))) // 2)
    grows = [GROWN.replace("END", end).strip()] if "grown(" in body else []
    text = "\n\n\n".join(
        [
            *filter(None, rest),
            HELPERS.strip(),
            *grows,
            *([JOINED.format(_join(op)).strip()] if "joined(" in body else []),
            body,
        ]
    )
    return "\n".join([*_imports(text, own), "", "", text]) + "\n"


def _imports(text: str, own: list[str]) -> list[str]:
    """The imports of the text and of the operator, each once; the former where they are needed."""
    used = {
        "from fractions import Fraction": r"\bFraction\(",
        "from functools import reduce": r"\breduce\(",
        "import numpy as np": r"\bnp\.",
        "import copy": r"\bcopy\.",
    }
    lines = ["import math", "import warnings", *(line for line, word in used.items() if re.search(word, text))]
    lines += ["from hypothesis import example, given, settings", "from hypothesis import strategies as st", *own]
    return sorted(dict.fromkeys(lines), key=lambda line: line.startswith("from"))


def _operator_blocks(op: Operator) -> list[list[str]]:
    """Lines that define each function the tests call, and the classes of its states."""
    functions = ((alias, getattr(op, alias)) for alias in ("combine", "lift", "finalize", "definition", "valid"))
    blocks = [definition_lines(function, alias) for alias, function in functions if function is not None]
    return blocks + [imported(kind, kind.__name__) for layout in (op.layout, op.element) for kind in _records(layout)]


def _records(layout: Layout | None) -> list[Any]:
    if not isinstance(layout, Several):
        return []
    own = [layout.type] if layout.type not in (tuple, list, dict) else []
    return own + [k for part in layout.parts for k in _records(part)]


def _join(op: Operator) -> str:
    if op.chunks == "list":
        return "[x for chunk in chunks for x in chunk]"
    return f"np.concatenate([{code(op.chunk((), False))}, *chunks])"


# --- one test ---------------------------------------------------------------------------------------------------------


def _test(op: Operator, name: str, law: Law, found: Found, check: Check) -> str:
    exact = found.how == {"in Fractions"} and not op.twice
    names = NAMES[: max(check.states, *(_reach(t) for t in (check.left, check.right) if t))]
    strategy = _strategy(op, law.kind or ("huge" if check.huge else ""), exact)
    lines = _decorators(op, names, strategy, found, exact) if names else []
    word = re.sub(r"\W+", "_", f"{name}_{law.name}").strip("_")
    position = law.checks.index(check)
    lines.append(f"def test_{word}{f'_{position}' if position and found.check is None else ''}({', '.join(names)}):")
    lines.append(f'    """{check.text()}"""')
    if any(E in _terms(t) or t.op == "folded" for t in (check.left, check.right) if t):
        lines.append(f"    identity = {code(op.layout.build(iter(op.identity or ()), exact))}")
    return "\n".join([*lines, *_demand(op, check, found, exact)])


def _decorators(op: Operator, names: str, strategy: str, found: Found, exact: bool) -> list[str]:
    """What draws the arguments of a test, with the counterexample among them."""
    lines = ["@settings(deadline=None)", f"@given({', '.join(f'{n}={strategy}' for n in names)})"]
    if found.check is not None:
        given = (f"{n}={code(_value(op, part, exact))}" for n, part in zip(names, found.case, strict=False))
        lines.append(f"@example({', '.join(given)})")
    return lines


def _demand(op: Operator, check: Check, found: Found, exact: bool) -> list[str]:
    lifts = op.lift is not None
    left = check.left.code(lifts)
    if check.demand == "kept":
        first, second = (a.code(lifts) for a in check.left.args)
        return [
            f"    x, y = copy.deepcopy(({first}, {second}))",
            "    before = repr((numbers(x), numbers(y)))",
            "    combine(x, y)",
            "    assert repr((numbers(x), numbers(y))) == before",
        ]
    if check.demand == "same":
        return [
            f"    first = repr(attempt(lambda: {left}))",
            f"    assert all(repr(attempt(lambda: {left})) == first for _ in range(1000))",
        ]
    if check.right is None:
        given = f"is_finite(lambda: {Term('state').code(lifts)})"
        demand = f"has_no_nan(lambda: {left})"
        return [f"    assert not {given} or {demand}" if check.states else f"    assert {demand}"]
    right = check.right.code(lifts)
    if op.finalize is not None:
        left = f"finalize({left})"
        right = f"finalize({right})" if check.right.op != "defined" else right
    return [f"    assert same(lambda: {left}, lambda: {right}, {0 if exact else _tolerance(op, found)})"]


def _tolerance(op: Operator, found: Found) -> str:
    """Half the digits of the type, where the counterexample is that far off; else the bound it exceeded."""
    half = PRECISION[op.dtype] // 2
    verdict = found.verdict
    if verdict is None or verdict.right is None or verdict.left.raised or verdict.right.raised:
        return f"2.0**-{half}"
    pairs = list(zip(verdict.left.numbers, verdict.right.numbers, strict=False))
    if not all(is_finite(x) and is_finite(y) for x, y in pairs):
        return f"2.0**-{half}"
    scale = max([1.0, *(abs(complex(x)) for pair in pairs for x in pair)])
    apart = max((abs(complex(x) - complex(y)) for x, y in pairs), default=0.0) / scale
    return f"2.0**-{half}" if apart > 2.0 ** (1 - half) else repr(verdict.bound / scale)


def _terms(term: Term) -> set[Term]:
    return {term}.union(*(_terms(a) for a in term.args))


def _reach(term: Term) -> int:
    """How many states or chunks a term reads."""
    own = 0 if term.op in ("nothing", "grown") else term.at + (term.op == "state")
    return max([own, *(_reach(a) for a in term.args)])


def _value(op: Operator, part: tuple[Any, ...], exact: bool) -> Any:
    return op.layout.build(iter(part), exact) if op.lift is None else op.chunk(part, exact)


# --- strategies and values as text ------------------------------------------------------------------------------------


def _strategy(op: Operator, kind: str, exact: bool) -> str:
    domains = iter(op.domains)
    if op.lift is None:
        text = layout_strategy(op.layout, domains, kind, exact)
    else:
        assert op.element is not None
        text = f"st.lists({layout_strategy(op.element, domains, kind, exact)}, max_size=4)"
        if op.chunks == "array":
            dtype = "object" if exact else code_dtype(op.element.leaves()[0])
            text += f".map(lambda v: np.array(v, dtype={dtype}))"
    return f"{text}.filter(valid)" if op.valid is not None and op.lift is None else text


def layout_strategy(layout: Layout, domains: Any, kind: str, exact: bool) -> str:
    """A strategy for values of a layout, with the special numbers of one kind among them."""
    if isinstance(layout, Scalar):
        return leaf_strategy(layout, next(domains), kind, exact)
    if isinstance(layout, Array):
        inner = [leaf_strategy(layout.element, next(domains), kind, exact) for _ in layout.leaves()]
        n = len(inner)
        dtype = "object" if exact and layout.element.kind == "float" else code_dtype(layout.element)
        return (
            f"st.lists({inner[0] if inner else 'st.none()'}, min_size={n}, max_size={n})"
            f".map(lambda v: np.array(v, dtype={dtype}).reshape({layout.shape}))"
        )
    parts = [layout_strategy(p, domains, kind, exact) for p in layout.parts]
    if layout.type is dict:
        inside = ", ".join(f"{k!r}: {p}" for k, p in zip(layout.keys, parts, strict=True))
        return f"st.fixed_dictionaries({{{inside}}})"
    joined = f"st.tuples({', '.join(parts)})"
    if layout.type is tuple:
        return joined
    return f"{joined}.map({'list' if layout.type is list else f'lambda v: {layout.type.__name__}(*v)'})"


def leaf_strategy(leaf: Scalar, domain: Domain, kind: str, exact: bool) -> str:
    if domain.choices:
        return f"st.sampled_from({code([leaf.hand(x, exact) for x in domain.choices])})"
    if leaf.kind == "bool":
        return "st.booleans()"
    if leaf.kind == "complex":
        return "st.complex_numbers(max_magnitude=8)"
    low = 1 if "positive" in domain.words else 0 if {"nonnegative", "count", "unit"} & domain.words else -64
    if leaf.kind == "int":
        return f"st.integers({low // 8 if low < 0 else low}, 9)"
    high = 8 if "unit" in domain.words else 64
    text = f"st.integers({low}, {high}).map(lambda k: {_eighths(leaf, domain, exact)})"
    special = list(dict.fromkeys(code(leaf.hand(x, exact)) for x in domain.special(kind))) if kind else []
    return f"({text} | st.sampled_from([{', '.join(special)}]))" if special else text


def _eighths(leaf: Scalar, domain: Domain, exact: bool) -> str:
    """The number that an integer k stands for: k where the domain is integral, else k eighths."""
    if exact:
        return f"Fraction(k, {1 if domain.integral else 8})"
    number = "float(k)" if domain.integral else "k / 8"
    return number if leaf.cast is None else f"{code_dtype(leaf)}({number})"


def code_dtype(leaf: Scalar) -> str:
    if leaf.cast is not None:
        return f"np.{leaf.cast.__name__}"
    return {"float": "np.float64", "int": "np.int64", "bool": "np.bool_", "complex": "np.complex128"}.get(
        leaf.kind, "object"
    )


def _fraction(q: Fraction) -> str:
    if q.denominator == 1 and abs(q) < 2**53:
        return f"Fraction({q.numerator})"
    if q.denominator < 2**20 and abs(q) < 2**53:
        return f"Fraction({q.numerator}, {q.denominator})"
    return f"Fraction({float(q)!r})" if Fraction(float(q)) == q else f"Fraction({q.numerator}, {q.denominator})"


def code(value: Any) -> str:
    """A value as Python source, given the names inf, nan, np and Fraction."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {code(v)}" for k, v in value.items()) + "}"
    if numpy_of(value) is not None:
        return _array_code(value)
    if hasattr(value, "__dataclass_fields__"):
        inside = ", ".join(f"{k}={code(getattr(value, k))}" for k in value.__dataclass_fields__)
        return f"{type(value).__name__}({inside})"
    if isinstance(value, tuple | list):
        return _sequence_code(value)
    if isinstance(value, Fraction):
        return _fraction(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    return repr(value)


def _array_code(value: Any) -> str:
    dtype = "object" if value.dtype == object else f"np.{value.dtype.type.__name__}"
    if not value.ndim:
        return f"{dtype}({code(value.item())})"
    flat = f"np.array({code(value.tolist())}, dtype={dtype})"
    return flat if value.size and value.ndim == 1 else f"{flat}.reshape({value.shape})"


def _sequence_code(value: tuple[Any, ...] | list[Any]) -> str:
    if isinstance(value, list) and len(value) > 8 and all(v == value[0] for v in value):
        return f"[{code(value[0])}] * {len(value)}"
    inside = ", ".join(map(code, value))
    if hasattr(value, "_fields"):
        return f"{type(value).__name__}({inside})"
    return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
