"""Tensors, scalars, positions and lengths: the leaves of a spec, as SymPy symbols over named axes."""

from __future__ import annotations

import itertools
import keyword
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import sympy

from redalg.errors import RedalgError
from redalg.graph.intervals import check_not_empty, words_between
from redalg.graph.node import Decl, Dimension, Node
from redalg.language.arithmetic import Operand
from redalg.language.windows import check_padding, dimensions, is_affine, without_lengths
from redalg.text.words import RESERVED

oo = inf = sympy.oo
nan = sympy.nan
DOMAINS = ("positive", "nonnegative", "integer", "bool", "complex")
_ARGUMENTS = frozenset(  # keywords of the calls that take tensors
    "out stream start exact deterministic nulls id by wrt given cotangents tangents target".split()
)


def _assumptions(domain: frozenset[str]) -> dict[str, bool]:
    """SymPy assumptions that stay true for infinities (an undeclared tensor may hold them; an integer one cannot)."""
    if "complex" in domain:
        return {}
    prefix = "" if domain & {"integer", "bool"} else "extended_"
    known = {f"{prefix}{d}": True for d in ("positive", "nonnegative") if d in domain}
    if domain & {"integer", "bool"}:
        known["integer"] = True
    if "bool" in domain:
        known["nonnegative"] = True
    return known or {"extended_real": True}


class Carrier:
    """An expression that is a leaf to SymPy and carries the graph node it stands for."""

    node: Node


class Leaf(Operand, Carrier, sympy.Symbol):
    """A symbol that carries the graph node it stands for; interned, so equal declarations are one object."""

    _objects: dict[Node, Leaf] = {}

    def __new__(cls, node: Node) -> Leaf:
        found = cls._objects.get(node)
        if found is None:
            found = sympy.Symbol.__xnew__(cls, cls.title(node), **cls.facts(node))
            found.node = node
            found = cls._objects.setdefault(node, found)
        return found

    @staticmethod
    def title(node: Node) -> str:
        return f"{node.op}[{node.attr}]"

    @staticmethod
    def facts(node: Node) -> dict[str, bool]:
        return {"integer": True, "nonnegative": True}

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(sorted(self.node.axes))

    def _hashable_content(self) -> tuple[Any, ...]:
        return (*super()._hashable_content(), self.node.digest)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.node,)

    def __copy__(self) -> Leaf:
        return self

    def __deepcopy__(self, memo: Any) -> Leaf:
        return self


class Index(Leaf):
    """The position along an axis."""


class Size(Leaf):
    """The length of an axis."""


class TensorSymbol(Leaf):
    """A declared array; `axes` in the order of its dimensions. Made by `tensors` and `scalar`."""

    @staticmethod
    def title(node: Node) -> str:
        return node.attr.name

    @staticmethod
    def facts(node: Node) -> dict[str, bool]:
        return _assumptions(node.attr.domain)

    @property
    def decl(self) -> Decl:
        return self.node.attr

    @property
    def axes(self) -> tuple[str, ...]:
        return self.decl.axes

    @property
    def domain(self) -> frozenset[str]:
        return self.decl.domain

    __iter__ = None  # indexed by names, not by numbers: no sequence

    def __getitem__(self, axes: Any) -> TensorSymbol:
        """The same array read along other axes, one for each dimension: ``X * X["j", "b"]`` for X[j,a], or in windows,
        ``X["j", "h + r"]`` (`redalg.language.windows`).

        Calls take the array once, under the tensor's name.

        Raises: RedalgError unless there is one axis for each dimension.
        """
        where = f"{self.decl}[{axes!r}]"
        wanted, windows = _indices(list(axes) if isinstance(axes, tuple) else axes, where)
        rank = len(windows or wanted)
        if rank != self.decl.rank:
            why = f"{self.decl} has {self.decl.rank} dimensions"
            raise RedalgError(f"the axes {', '.join(wanted)}", where, why, "name one axis for each dimension")
        return self.reading(wanted, windows, where)

    def reading(self, axes: tuple[str, ...], windows: tuple[Dimension, ...], where: str) -> TensorSymbol:
        """The same array along these axes."""
        d = self.decl
        if (axes, windows) in ((d.axes, d.dimensions), (d.axes, without_lengths(d.dimensions))):
            return self
        name = d.array or d.name
        check_padding(name, windows, d.domain, where)
        alias = "_".join((name, *re.findall(r"\w+", " ".join(map(str, windows or axes)))))
        return TensorSymbol(Node("tensor", (), Decl(alias, axes, d.domain, name, windows)))


_clock = itertools.count()
_declared: dict[Decl, int] = {}


def declaration_time(decl: Decl) -> int | None:
    """When the user last declared this tensor: the default order of a spec's tensors."""
    return _declared.get(decl)


def check_name(name: str, kind: str, where: str) -> str:
    """A usable identifier, or a four-part error."""
    if not name.isidentifier():
        why, fix = "it is not a Python identifier", "use letters, digits and _, and no digit first"
        raise RedalgError(f"the {kind} name {name!r}", where, why, fix)
    if keyword.iskeyword(name):
        raise RedalgError(f"the {kind} name {name!r}", where, "it is a keyword of Python", f"rename it, e.g. {name}_")
    check_normal(name, kind, where)
    if kind == "axis" and name in ("inf", "nan"):
        raise RedalgError(f"the axis name {name!r}", where, "it is a number's word", f"rename it, e.g. {name}_")
    if kind == "tensor" and name in RESERVED | _ARGUMENTS:
        why = "it is a word of the text grammar" if name in RESERVED else "it is an argument of the calls"
        raise RedalgError(f"the tensor name {name!r}", where, why, f"rename it, e.g. {name}_ or {name.upper()}")
    return name


def check_normal(name: str, kind: str, where: str) -> None:
    """Identifiers that Python takes for one (it normalises them) may not be two names here, where they are strings."""
    plain = unicodedata.normalize("NFKC", name)
    if name != plain:
        why = f"it is not in normal form (NFKC): in source, Python reads it as {plain!r}"
        raise RedalgError(f"the {kind} name {name!r}", where, why, f"write {plain!r}")


def axis_names(axis: Any, where: str) -> tuple[str, ...]:
    """One axis name, or a list of them (one composite axis), checked."""
    names = re.split(r"[\s,]+", axis.strip()) if isinstance(axis, str) else axis
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(n, str) for n in names):
        raise RedalgError(f"the axis {axis!r}", where, "an axis is named by a string", 'write "j", or ["i", "j"]')
    for n in names:
        check_name(n, "axis", where)
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise RedalgError(
            f"the axis {twice!r} named twice",
            where,
            "each dimension has its own axis: a diagonal such as A[i,i] is not in the language",
            "rename one axis, or pass a diagonal as a tensor of its own",
        )
    return tuple(names)


def _indices(given: Any, where: str) -> tuple[tuple[str, ...], tuple[Dimension, ...]]:
    """The axes of indices, as text or a list, and the dimensions of windows."""
    if isinstance(given, str) and is_affine(given):
        given = given.split(",")
    if isinstance(given, list) and any(isinstance(i, str) and is_affine(i) for i in given):
        axes, found = dimensions(list(map(str, given)), where)
        return axis_names(axes, where), found
    return axis_names(given, where), ()


def make_domain(domains: dict[str, Any], where: str) -> frozenset[str]:
    """The frozenset of declared domain words; contradictions and unknown words are refused."""
    domains = dict(domains)
    between = domains.pop("between", None)
    interval: frozenset[str] = frozenset() if between is None else words_between(between, where)
    for word, value in domains.items():
        if word not in DOMAINS:
            known = f"use one of {', '.join(DOMAINS)}, between"
            raise RedalgError(f"the domain {word!r}", where, "it is unknown", known)
        if not isinstance(value, bool):
            raise RedalgError(f"{word}={value!r}", where, "a domain is switched on or off", f"write {word}=True")
    found = frozenset(w for w, v in domains.items() if v) | interval
    for alone in ("bool", "complex"):
        if alone in found and len(found) > 1:
            others = ", ".join(sorted(found - {alone}))
            raise RedalgError(
                f"the domains {alone} and {others}", where, "they exclude each other", f"keep {alone} only"
            )
    found = found - {"nonnegative"} if "positive" in found else found
    check_not_empty(found, where)
    return found


def declare(
    name: str,
    axes: Iterable[str] = (),
    domain: frozenset[str] = frozenset(),
    stamp: bool = True,
    windows: tuple[Dimension, ...] = (),
) -> TensorSymbol:
    """The tensor of this declaration, entered last in the order of declarations (unless `stamp` is False)."""
    check_padding(name, windows, domain, f"the declaration of {name}")
    node = Node("tensor", (), Decl(name, tuple(axes), domain, dimensions=windows))
    if stamp:
        _declared[node.attr] = next(_clock)
    return TensorSymbol(node)


_ITEM = re.compile(r"\s*([^\s,\[\]]+)\s*(?:\[([^\[\]]*)\])?\s*,?")


def tensors(text: str, **domains: Any) -> Any:
    """Declare tensors over named axes: ``"Q[h,i,d] K[h,j,d]"``; one gives one object, several a tuple.

    Domains (``positive nonnegative integer bool complex``, or an interval with open ends: ``between=(0, 1)``, floats as
    the rationals they hold, an infinity for no end) apply to all of them; undeclared tensors are extended reals. Equal
    declarations are one object. ``"x[b, 2*h + r - 1, c]"`` reads an array in windows (`redalg.language.windows`).
    Data are taken at their word: nothing looks whether they keep to the domain.

    Raises: RedalgError for malformed text, a repeated axis (``A[i,i]``), reserved names, contradicting or empty
    domains.

    >>> Q, K = tensors("Q[i,d] K[j,d]")
    >>> Q.axes, tensors("Q[i,d]") is Q
    (('i', 'd'), True)
    >>> tensors("w[j]", between=(0, 0.5)) is tensors("w[j]", between=(0, sympy.Rational(1, 2)))
    True
    """
    where = f"ra.tensors({text!r})"
    if not isinstance(text, str) or not text.strip():
        raise RedalgError(f"{text!r}", where, "a declaration is a non-empty string", 'write ra.tensors("x[i,j] w[j]")')
    domain, found, at = make_domain(domains, where), [], 0
    while at < len(text.rstrip()):
        match = _ITEM.match(text, at)
        if match is None:
            raise RedalgError(repr(text[at:]), where, "it is not `name[axis,axis]`", 'write ra.tensors("x[i,j] w[j]")')
        name, inside = match.group(1), match.group(2)
        axes, windows = ((), ()) if inside is None or not inside.strip() else _indices(inside, where)
        found.append((check_name(name, "tensor", where), axes, windows))
        at = match.end()
    made = tuple(declare(name, axes, domain, windows=windows) for name, axes, windows in found)
    return made[0] if len(made) == 1 else made


def scalar(name: str, **domains: Any) -> TensorSymbol:
    """Declare a tensor without axes, bound like any other when a spec runs; domains as in `tensors`.

    >>> scalar("scale", positive=True).domain
    frozenset({'positive'})
    >>> sorted(scalar("al", between=(0, 1)).domain)
    ['below 1', 'positive']
    """
    where = f"ra.scalar({name!r})"
    if not isinstance(name, str):
        raise RedalgError(f"{name!r}", where, "a name is a string", 'write ra.scalar("scale")')
    return declare(check_name(name, "tensor", where), (), make_domain(domains, where))


def index(axis: str) -> Index:
    """The position along an axis, counted from 0: ``ra.where(ra.index("j") <= ra.index("i"), S, -ra.oo)``.

    >>> index("j")
    index[j]
    """
    return Index(Node("index", (), _one_axis(axis, "ra.index")))


def size(axis: str) -> Size:
    """The length of an axis.

    >>> size("j")
    size[j]
    """
    return Size(Node("size", (), _one_axis(axis, "ra.size")))


def _one_axis(axis: Any, where: str) -> str:
    names = axis_names(axis, where)
    if len(names) != 1:
        raise RedalgError(f"the axis {axis!r}", where, "one axis is expected", "name one axis")
    return names[0]
