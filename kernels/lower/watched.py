"""Which sums, products and extrema of a program may leave the range of its reals while the definition does not.

A float32 sum of squares is infinite from elements of 1e19 on, and 0 below 1e-23; a variance of either gives a LayerNorm
that is off by any factor, and finite. A kernel tells rows whose state shows that (`redalg.kernels.cpu.watch`); nothing
is asked where the bodies show that it cannot be: exponentials less their maximum, ratios to a unit, 16-bit elements.

An extremum is a number of the data where its body is one. It is looked at where it is computed (the least distance of
elements near 1e-30 is 0, at position 0), where results divide by it, and where they add numbers as large, whose sum
they hide: (x - min x)/(max x - min x) of elements near 3e38 is 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf, log2

from redalg.graph.node import COMPARISONS, UNARY, Node, is_const, is_inverse, leaves, walk
from redalg.graph.operators import Extremum, Position, Product, Sum, TopK
from redalg.kernels.ir.compensated import COMPENSATED
from redalg.kernels.ir.program import Factor, Fold, Loop, Part, Pass, Program, Watch
from redalg.kernels.lower.bounds import bounds_of, degree_of, is_datum, size_of, slack_of
from redalg.kernels.lower.signs import SEEN

REACH = {"float16": 16.0, "float8_e4m3fn": 9.0, "float8_e5m2": 16.0, "bool": 0.0}  # log2 of the largest number
REACH |= {f"{sign}int{bits}": float(bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
FLOOR = {"float16": -24.0, "float8_e4m3fn": -9.0, "float8_e5m2": -16.0}  # of the smallest one but 0
RANGE = {"float32": (-126.0, 127.0), "float64": (-1022.0, 1023.0)}
LENGTH = 40.0  # log2 of more elements than a stream has
FRACTION = 24.0  # bits by which a difference from a mean is smaller than its smallest term
ONE = frozenset({"tanh", "sigmoid", "erf", "erfc", "sin", "cos", "sign"})  # functions that are at most 1, or 2
SAME = frozenset({"abs", "relu", "floor", "ceil"})  # whose values are no larger than their arguments, by 1 at most
LEAVES = frozenset({"const", "tensor", "state", "cast", "index", "size"})
LARGEST = frozenset({"add", "maximum", "minimum", "where"})  # whose values are at most the largest argument, or a sum
PASSED = ("abs", "maximum", "minimum", "where")  # that are as large as an argument
SQUARE = 2
PAIR = 2  # factors: an element, and one over its unit
GUARD_OF_SUMS = 1.4  # of one that they divide a difference of by constants, which may be by 24 bits smaller
GUARD = 1.125  # the power of an extremum that results multiply or divide by constants and counts, too, in one product


def watched(program: Program) -> Program:
    """The program with what is to be looked at once the state of a row is known.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.catalog["rms_norm"])
    >>> (watch,) = watched(lower(form, {"x": "float32", "weight": "float32", "eps": float})).watched
    >>> watch.part, sorted(watch.reads), watch.factors
    ('avg_x2', ['x'], (Factor(tensor='x', centred=False, degree=2.0, others=()),))
    >>> watched(lower(form, {"x": "float16", "weight": "float16", "eps": float})).watched
    ()
    >>> watched(lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})).watched
    ()
    """
    found = tuple(w for p in program.passes for w in _Watching(program, p).found())
    return replace(program, watched=found) if found else program


class _Watching:
    """The sums and products of one pass."""

    def __init__(self, program: Program, p: Pass) -> None:
        self.program, self.real, self.parts = program, program.real, {part.name: part for part in p.parts}
        self.folds = [f for step in p.lift if isinstance(step, Loop) for f in step.folds]
        self.dtypes = {o.name: o.dtype for o in program.operands}
        attained = {name + "_b" for name in program.attained}
        self.ends = _ends(program)
        self.least_one = {f.bodies[0] for f in self.folds if f.names[0] in attained}  # exp(u - max u), at most 1

    def found(self) -> Iterator[Watch]:
        same: dict[tuple[str, Node], Watch] = {}  # an extremum and its position have one value
        for fold in self.folds:
            part = self._part(fold)
            if part is None or part.kind != "f" or part.top and part.axes:
                continue
            if isinstance(fold.op, Extremum | Position | TopK):
                watch = self._watch_extremum(fold, part)
                key = fold.op.kind.removeprefix("arg"), fold.bodies[0]  # a list is the only one of its body
                if watch is not None:
                    same[key] = _both(same[key], watch) if key in same else watch
            else:
                watch = self._watch(fold, part)
                if watch is not None:
                    yield watch
        yield from same.values()
        yield from self._locations()

    def _locations(self) -> Iterator[Watch]:
        """What elements are centred on, where results take a power of it: a mean is its location and what is left of
        the elements, which shows nothing of how large they are."""
        for name, read in self._centred().items():
            among, results = self._among(name), self._results(name)
            power = max([1.0, among, *map(_degree, results)])
            reach = max([self._leaf(n) for n in read], default=0.0)
            factors = tuple(Factor(n.attr.name, False, 1.0) for n in read[:1]) if len(read) == 1 else ()
            if among <= 1 or not _show_small(results) or self._bound(factors) * power >= RANGE[self.real][0]:
                factors = ()
            if power > 1 and (reach * power > RANGE[self.real][1] or factors):
                reads = frozenset(n.attr.name for n in read)
                yield Watch(
                    name,
                    reads,
                    average=True,
                    factors=factors,
                    power=power,
                    terms=1 + (among > 1),
                )

    def _centred(self) -> dict[str, list[Node]]:
        """The numbers of a state that no fold computes and that sums are about, with the tensors of one of these."""
        folded = {name.removesuffix("_b") for f in self.folds for name in f.names}
        sums = (f.bodies[0] for f in self.folds if isinstance(f.op, Sum) or f.op == COMPENSATED)
        read = {n.attr.name.removesuffix("_b"): leaves(b, "tensor") for b in sums for n in leaves(b, "state")}
        plain = [n for n, part in self.parts.items() if part.kind == "f" and not part.top]
        return {n: read[n] for n in plain if n in read and n not in folded}

    def _part(self, fold: Fold) -> Part | None:
        """What of the state a sum, a product or an extremum is."""
        if not isinstance(fold.op, Sum | Product | Extremum | Position | TopK) and fold.op != COMPENSATED:
            return None
        name = fold.names[0].removesuffix("~sum")
        return self.parts.get(name.removesuffix("_b")) if name.endswith("_b") else None

    def _watch(self, fold: Fold, part: Part) -> Watch | None:
        body, readers = fold.bodies[0], self._readers(part.name)
        average, reads = fold.names[0].endswith("~sum"), frozenset(n.attr.name for n in leaves(body, "tensor"))
        joint, product = self._in_joint_unit(fold), isinstance(fold.op, Product)
        if joint:
            return Watch(part.name, reads, (), average, joint) if _show_small(readers) else None
        factors = _factored(body) or _contracted(body)
        among, scales = self._hidden_powers(body, part)
        power = max([GUARD if scales else 1.0, among, *map(_degree, readers)])
        whole = among > 1 or scales
        smallest = -inf if product else self._bound(factors) if whole else self._smallest(factors)
        above = product or self._is_above(body, average, power)
        below = smallest * power < RANGE[self.real][0] and _show_small(readers)
        if not (above or below):
            return None
        held = (factors if below else ()), power, 1 + whole  # a mean is two numbers
        return Watch(part.name, reads, tuple(_positive(body)), average, *held, product=product and below)

    def _hidden_powers(self, body: Node, part: Part) -> tuple[float, bool]:
        """How many numbers results multiply a sum by, where they hide that, and whether one over it scales elements."""
        centred = bool(leaves(body, "state"))  # about a location, which tells
        among = 0.0 if centred else self._among(part.name)
        return among, any(_scales(n, part.name) for n in self._results(part.name))

    def _is_above(self, body: Node, average: bool, power: float) -> bool:
        """Whether a sum, or a power of it, may be above the range."""
        most, anchor = RANGE[self.real][1], max([self._leaf(n) for n in leaves(body, "tensor")], default=0.0)
        reach = self._reach(body, anchor)
        return reach + LENGTH > most or (reach + LENGTH * (not average)) * power > most

    def _in_joint_unit(self, fold: Fold) -> tuple[Factor, ...]:
        """Of a sum of powers of a tensor in a unit that another one is held in, too: as small as it is beside that."""
        body = fold.bodies[0]
        powered = body.op == "pow" and is_const(body.args[1])
        base, degree = (body.args[0], degree_of(body.args[1])) if powered else (body, 1.0)
        units = [n.args[0] for n in base.args if is_inverse(n)] if base.op == "mul" else []
        tensors = [n for n in base.args if n.op == "tensor"]
        if len(base.args) > PAIR or not tensors or not units or units[0].op != "pow2":
            return ()
        others = self._read_by_unit(units[0]) - {tensors[0].attr.name}
        if not others or isinstance(fold.op, Product):
            return ()
        return (Factor(tensors[0].attr.name, False, degree, tuple(sorted(others))),)

    def _read_by_unit(self, unit: Node) -> set[str]:
        """The tensors whose largest elements a unit is of."""
        parts = {n.attr.name for n in leaves(unit, "state")}
        bodies = [b for f in self.folds if f.names[0] in parts for b in f.bodies]
        return {n.attr.name for b in bodies for n in leaves(b, "tensor")}

    def _watch_extremum(self, fold: Fold, part: Part) -> Watch | None:
        body = fold.bodies[0]
        read = leaves(body, "tensor")
        if any(f.attr.name not in self.dtypes for f in read):
            return None
        bounds, results = bounds_of(body), self._results(part.name)
        outside = self._datum_outside if is_datum(body) else self._computed_outside
        above, below, power = outside(fold, part, bounds or (), results)
        if not (above or below):
            return None
        terms = 2 if above and is_datum(body) else 1
        reads = frozenset(n.attr.name for n in read)
        factors = bounds if below and bounds else ()
        more = terms, True, above or not factors, bounds or (), slack_of(body)
        return Watch(part.name, reads, (), False, factors, power, *more)

    def _computed_outside(
        self, fold: Fold, part: Part, bounds: tuple[Factor, ...], results: list[Node]
    ) -> tuple[bool, bool, float]:
        """Whether an extremum that is computed may be above or below the range where results hide that, and the power
        that is to be inside."""
        position, (least, most) = isinstance(fold.op, Position | TopK), RANGE[self.real]
        power = max([1.0, *map(_degree, results)])
        above = self._reach(fold.bodies[0], 0.0) * power > most and (position or any(n.op != "state" for n in results))
        shown = position or _show_small(results)
        return above, shown and self._smallest_bound(bounds) * power < least, power

    def _datum_outside(
        self, fold: Fold, part: Part, bounds: tuple[Factor, ...], results: list[Node]
    ) -> tuple[bool, bool, float]:
        """The same of an extremum that is a number of the data."""
        (least, most), among = RANGE[self.real], self._multiplied(part.name)
        above = self._reach(fold.bodies[0], 0.0) + 1 > most and any(_hides_sums(n, part.name) for n in results)
        if among:
            return self._reach(fold.bodies[0], 0.0) * among > most, self._bound(bounds) * among < least, float(among)
        below = any(_divides_by(n, part.name) for n in results)
        apart = not below and fold.op.kind == "max" and any(_divides_by_sum(n, part.name) for n in results)
        return above, (below or apart) and self._bound(bounds) < least, GUARD_OF_SUMS if apart else GUARD

    def _multiplied(self, name: str) -> float:
        """How many numbers as large are multiplied where results hide a product of an extremum by itself or others.

        A result that is the square of one is outside where the square is; a root of it, a sum, or a product with
        another extremum is not.
        """
        shown = {n for r in self.program.results for n in _products(r.node)}
        found, own = 0.0, self.ends.get(name, "")
        for n in self._results(name):
            degrees: dict[str, float] = defaultdict(float)
            for base, degree in _powers(n):
                degrees[self.ends.get(_held(base), "")] += degree
            others = degrees.pop("", 0.0)
            if degrees[own] and (len(degrees) > 1 or (degrees[own] > 1 or others) and n not in shown):
                found = max(found, sum(degrees.values()) + (others > 0))
        return found

    def _among(self, name: str) -> float:
        """How many numbers of the state are multiplied where results hide a product of a sum by others, above or below
        a line; half a number more where one of them is multiplied by a count."""
        shown = {n for r in self.program.results for n in _products(r.node, ("mul", "add"))}
        found = counted = 0.0
        for n in self._results(name):
            factors = list(_quotients(n))
            powers = [(b, d) for b, d in factors if self._varies(b)]
            counted = max(counted, 0.5 * (0 < len(powers) < sum(d > 0 for _, d in factors)))
            above, below = _sides([d for b, d in powers if b.op not in ONE and not b.is_boolean])
            if (n not in shown or above and below) and any(_reads(b, (name,)) for b, _ in powers):
                found = max([found, *(sum(side) for side in (above, below) if len(side) > 1)])
        return found and found + counted

    def _varies(self, node: Node) -> bool:
        """Whether a factor is computed of the state, and not of counts of elements alone."""
        names = [n.attr.name for n in leaves(node, "state")]
        counts = all(n in SEEN or n in self.parts and self.parts[n].kind != "f" for n in names)
        return not counts and not leaves(node, "tensor")

    def _results(self, name: str) -> list[Node]:
        """What results and exports compute of a part of the state, by themselves or from other exports."""
        names, lets = {name}, [let for p in self.program.passes for let in p.exports]
        for let in lets:
            if _reads(let.node, names):
                names.add(let.name)
        nodes = [let.node for let in lets] + [r.node for r in self.program.results]
        return [n for n in walk(*nodes) if _reads(n, names)]

    # --- how large ---------------------------------------------------------------------------------------------------

    def _leaf(self, leaf: Node) -> float:
        return REACH.get(self.dtypes[leaf.attr.name], inf)

    def _reach(self, node: Node, anchor: float) -> float:
        """The log2 of a bound of a node's magnitude; `anchor`: of what elements are centred on."""
        if node in self.least_one or node.op in ONE or node.is_boolean:
            return 1.0
        if node.op in LEAVES:
            return self._reach_of_leaf(node, anchor)
        if node.op == "mul":
            return self._product(node.args, anchor)
        if node.op == "pow":
            base, exponent = node.args
            known = is_const(exponent) and exponent.attr > 0
            return degree_of(exponent) * max(0.0, self._reach(base, anchor)) if known else inf
        if node.op in LARGEST:
            choices = node.args[1:] if node.op == "where" else node.args
            more = log2(len(node.args)) if node.op == "add" else 0.0
            return max(self._reach(n, anchor) for n in choices) + more
        return self._reach(node.args[0], anchor) + 1.0 if node.op in SAME else inf

    def _reach_of_leaf(self, node: Node, anchor: float) -> float:
        match node.op:
            case "const":
                return size_of(node) if node.attr else 0.0
            case "tensor":
                return self._leaf(node)
            case "state":
                return anchor if node.attr.name.removesuffix("_b") in self.parts else inf
            case "cast":
                return REACH.get(node.attr, inf)
            case _:
                return LENGTH

    def _product(self, factors: Iterable[Node], anchor: float) -> float:
        """An element over its unit is at most 2; a difference may leave the range before it is divided."""
        units = [n for n in factors if n.op == "pow" and n.args[0].op == "pow2"]
        others = [n for n in factors if n not in units]
        if len(units) == 1 and len(others) == 1 and _factored(others[0]):
            held = _plain(others[0]).op == "tensor" or self._reach(others[0], anchor) < RANGE[self.real][1]
            return 2.0 if held else inf
        return sum(self._reach(n, anchor) for n in factors)

    # --- how small ---------------------------------------------------------------------------------------------------

    def _smallest(self, factors: Iterable[Factor]) -> float:
        """The log2 of the smallest product of several numbers, none of which is 0; 0 of one number, which is exact."""
        return self._bound(factors) if sum(f.degree for f in factors) >= SQUARE else 0.0

    def _smallest_bound(self, bounds: Sequence[Factor]) -> float:
        """The same of the terms of an extremum, whose differences are exact where they are small."""
        exact = len(bounds) <= 1 and all(f.degree <= 1 for f in bounds)
        return 0.0 if exact else self._bound(bounds)

    def _bound(self, factors: Iterable[Factor]) -> float:
        least = 0.0
        for f in factors:
            dtypes = [self.dtypes[name] for name in (f.tensor, *f.others)]
            if f.degree < 0:
                least += f.degree * (max(REACH.get(d, inf) for d in dtypes) + LENGTH * f.centred)
            else:
                floor = min(FLOOR.get(d, 0.0 if "int" in d else -inf) for d in dtypes)
                least += f.degree * (floor - FRACTION * f.centred)
        return least

    def _readers(self, name: str) -> list[Node]:
        """What exports, results and later passes compute of a part of the state."""
        names, program = {name}, self.program
        exports = [let for p in program.passes for let in p.exports]
        for let in exports:
            if _reads(let.node, names):
                names.add(let.name)
        nodes = [let.node for let in exports] + [r.node for r in program.results]
        nodes += [b for p in program.passes for s in p.lift if isinstance(s, Loop) for f in s.folds for b in f.bodies]
        return [n for n in walk(*nodes) if _reads(n, names)]


def _reads(node: Node, names: Iterable[str]) -> bool:
    return any(leaf.attr.name in names for leaf in leaves(node, "state"))


def _ends(program: Program) -> dict[str, str]:
    """The extrema of a program, and what they are called where they are handed on."""
    folds = [f for p in program.passes for step in p.lift if isinstance(step, Loop) for f in step.folds]
    found = {name: name for f in folds if isinstance(f.op, Extremum) for name in [f.names[0].removesuffix("_b")]}
    for let in [let for p in program.passes for let in p.exports]:
        if let.node.op == "state" and let.node.attr.name in found:
            found[let.name] = found[let.node.attr.name]
    return found


def _products(node: Node, through: tuple[str, ...] = ("mul",)) -> Iterator[Node]:
    """A result, and where it is a product what is multiplied first."""
    yield node
    for n in node.args[1:] if node.op == "where" else node.args if node.op in through else ():
        yield from _products(n, through if node.op != "mul" else ("mul",))


def _powers(node: Node) -> Iterator[tuple[Node, float]]:
    """The factors of a product that multiply, and how many times each does."""
    if node.op == "mul":
        for n in node.args:
            yield from _powers(n)
    elif node.op == "pow" and is_const(node.args[1]):
        yield from ((n, d * degree_of(node.args[1])) for n, d in _powers(node.args[0]) if node.args[1].attr > 0)
    elif node.op not in ("const", "size"):
        yield node, 1.0


def _quotients(node: Node) -> Iterator[tuple[Node, float]]:
    """The factors of a product, and the power of each, whichever its sign."""
    if node.op == "mul":
        for n in node.args:
            yield from _quotients(n)
    elif node.op == "pow" and is_const(node.args[1]):
        yield from ((n, d * float(node.args[1].attr)) for n, d in _quotients(node.args[0]))
    elif node.op not in ("const", "size"):
        yield node, 1.0


def _sides(powers: list[float]) -> tuple[list[float], list[float]]:
    """Powers above and below a line."""
    return [d for d in powers if d > 0], [-d for d in powers if d <= 0]


def _held(node: Node) -> str:
    """The part of a state that a factor is, or the unit of."""
    plain = node.args[0] if node.op == "pow2" else node
    return str(plain.attr.name) if plain.op == "state" else ""


def _show_small(nodes: Iterable[Node]) -> bool:
    """Whether something computed of a part of the state shows how small it is."""
    return any(_magnifies(n) or _is_quotient(n) for n in nodes)


def _magnifies(node: Node) -> bool:
    if node.op == "pow":
        exponent = node.args[1]
        return not (is_const(exponent) and exponent.attr > 0 and Fraction(exponent.attr).denominator == 1)
    return node.op in UNARY or node.op in COMPARISONS


def _degree(node: Node) -> float:
    """The degree of a power, whichever its sign."""
    return abs(degree_of(node.args[1])) if node.op == "pow" and is_const(node.args[1]) else 1.0


def _is_quotient(node: Node) -> bool:
    """Whether something is divided by what the data say."""
    below = [n for n in node.args if is_inverse(n)] if node.op == "mul" else []
    return any(leaf.attr.name not in SEEN for n in below for leaf in leaves(n, "state"))


def _divides_by(node: Node, name: str) -> bool:
    """Whether a part of the state is what something is divided by, but for constants."""
    if not is_inverse(node):
        return False
    base = node.args[0]
    factors = [n for n in (base.args if base.op == "mul" else (base,)) if n.op != "const"]
    return len(factors) == 1 and factors[0].op == "state" and factors[0].attr.name == name


def _divides_by_sum(node: Node, name: str) -> bool:
    """Whether something is divided by a sum of a part of the state and of numbers as large, or by a multiple of it."""
    if not is_inverse(node):
        return False
    base = node.args[0]
    factors = [n for n in (base.args if base.op == "mul" else (base,)) if n.op != "const"]
    return len(factors) == 1 and factors[0].op == "add" and name in _data(factors[0])


def _scales(node: Node, name: str) -> bool:
    """Whether a number over a part of the state is what elements are multiplied by: it is infinite before these are."""
    if node.op != "mul":
        return False
    below = [n for n in node.args if _divides_by(n, name)]
    return bool(below) and all(n in below or n.op in ("const", "size") or _is_seen(n) for n in node.args)


def _is_seen(node: Node) -> bool:
    return node.op == "state" and node.attr.name in SEEN


def _both(a: Watch, b: Watch) -> Watch:
    """What is watched of one value for two reasons."""
    power, terms = max(a.power, b.power), max(a.terms, b.terms)
    return replace(a, factors=a.factors or b.factors, power=power, terms=terms, above=a.above or b.above)


def _hides_sums(node: Node, name: str) -> bool:
    """Whether a sum of a part of the state and of numbers as large is less of what is computed of it than it is itself.

    Exponentials of differences from an extremum are 0 where the difference is an infinity.
    """
    hidden = node.args if node.op not in ("add", "exp", *PASSED) else ()
    return any(name in data and len(data) > 1 for a in hidden for data in map(_data, _sums(a)))


def _sums(node: Node) -> Iterator[Node]:
    """The sums that a value is as large as."""
    if node.op == "add":
        yield node
    elif node.op in PASSED:
        for n in node.args:
            yield from _sums(n)


def _data(total: Node) -> list[str]:
    """What of the data or the state a sum has for its terms, but for constants."""
    terms = [[f for f in (n.args if n.op == "mul" else (n,)) if f.op != "const"] for n in total.args]
    return [t[0].attr.name for t in terms if len(t) == 1 and t[0].op in ("tensor", "state")]


def _plain(node: Node) -> Node:
    """What a magnitude is of."""
    return _plain(node.args[0]) if node.op in SAME else node


def _factored(body: Node) -> tuple[Factor, ...]:
    """A body as a product of powers of tensors and of tensors less something of the row; none where it is no such."""
    found = []
    for n in body.args if body.op == "mul" else (body,):
        base, degree = (n.args[0], n.args[1]) if n.op == "pow" else (n, None)
        if n.op in ("const", "size"):
            continue
        if degree is not None and not (is_const(degree) and degree.attr >= 1):
            return ()
        base = _plain(base)
        read = leaves(base, "tensor")
        alone = base.op == "tensor" or base.op == "add" and len(read) == 1 and read[0] in base.args
        if not alone:
            return ()
        found.append(Factor(read[0].attr.name, base.op == "add", degree_of(degree) if degree is not None else 1.0))
    return tuple(found)


def _contracted(body: Node) -> tuple[Factor, ...]:
    """The same of sums over further axes: of one tensor, as large as its elements."""
    found = bounds_of(body) or ()
    return found if all(f.degree > 0 and not f.others for f in found) else ()


def _positive(body: Node) -> Iterator[str]:
    """Tensors that have to be positive for a body to be a number: of a logarithm, of a power below 0 or of a root."""
    seen: Mapping[str, None] = {
        base.attr.name: None
        for n in walk(body)
        for base in ([n.args[0]] if n.op == "log" or n.op == "pow" and _magnifies(n) else [])
        if base.op == "tensor"
    }
    yield from seen
