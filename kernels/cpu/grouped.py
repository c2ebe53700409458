"""The lift of a form as loops over rows with a state for every group: nothing is sorted, and nothing is gathered.

The printed function of a lift (`Program.rows`) is straight-line: what varies by row is an element, what a reduction
gives is a value of the group. A value is of stage k if k loops over the rows have to be done before it is known: the
reductions of one stage share a loop, ``sums[code] += element``, in which values of groups that are known by then are
read at the row's code; what is made of values of groups alone is done by NumPy between the loops.

Sums are added up in float64, in segments of rows, so that none is long. What has no such loop is `Unsupported`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from redalg.kernels.cpu.build import functions
from redalg.kernels.cpu.math.table import OPERATIONS as MATH
from redalg.kernels.cpu.threads import share, threads
from redalg.kernels.ir.program import Param
from redalg.numeric.integers import as_float
from redalg.parsing import parse
from redalg.source.statements import Assign, If, Return
from redalg.source.statements import names as names_in
from redalg.streaming.program import Program
from redalg.streaming.tapes.tape import Tape

SEGMENT = 1 << 14  # rows whose elements are added up one by one
ROOM = 1 << 21  # values of groups in all segments together, unless one segment alone has more
LOADED = frozenset("bool int8 int16 int32 uint8 uint16 uint32 float32 float64".split())
INFIX = {"np.subtract": "-", "np.add": "+", "np.multiply": "*", "np.divide": "/", "np.less": "<", "np.less_equal": "<="}
INFIX |= {"np.equal": "==", "np.not_equal": "!=", "np.logical_and": "and", "np.logical_or": "or"}
CALLS = {"np.absolute": "abs", "np.maximum": "max_nan", "np.minimum": "min_nan", "masked_exp": "exp"}
CALLS |= {f"np.{name}": name for name in ("exp", "log", "sqrt", "expm1", "log1p", "tanh", "exp2", "log2")}
SUMS = ("fixed_sum", "sum_over")
EXTREMA = {"max_over": "max_nan", "min_over": "min_nan"}
QUANTIFIERS = {"any_over": "or", "all_over": "and"}


class Unsupported(Exception):
    """A lift that has no such loops."""


@dataclass(frozen=True)
class Element:
    """A value by row: `text` over the names of others; `kind` f, i or b; `reads`: what it needs, in order."""

    name: str
    text: str
    kind: str
    stage: int
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reduced:
    """A value of the group that a loop gives."""

    name: str
    element: str
    how: str
    kind: str
    stage: int  # of the loop


@dataclass
class Phases:
    """A lift by stages: loops over rows, and expressions of NumPy over arrays (1, groups, 1)."""

    real: np.dtype
    tensors: dict[str, str] = field(default_factory=dict)  # name in the text -> key
    given: dict[str, str] = field(default_factory=dict)  # values that are known before the first loop -> key
    elements: dict[str, Element] = field(default_factory=dict)
    reduced: list[Reduced] = field(default_factory=list)
    values: list[tuple[int, str, Any]] = field(default_factory=list)  # stage, name, compiled expression
    known: dict[str, int] = field(default_factory=dict)  # value of the group -> stage
    watched: list[str] = field(default_factory=list)  # values that have to be finite
    results: list[str] = field(default_factory=list)
    dtypes: list[np.dtype] = field(default_factory=list)

    @property
    def stages(self) -> int:
        return 1 + max((r.stage for r in self.reduced), default=-1)

    def loop(self, stage: int, dtypes: Mapping[str, str]) -> tuple[str, list[Param], list[str], list[Reduced]]:
        """The text of a loop, what it takes, the values of groups that it reads, and its reductions."""
        mine = [r for r in self.reduced if r.stage == stage]
        needed: dict[str, None] = {}
        for r in mine:
            self._need(r.element, needed)
        tensors = [t for t in self.tensors if t in needed]
        groups = [n for n in needed if n in self.known]
        params = [Param("operand", "codes", "int64"), Param("number", "base", "int64")]
        params += [Param("operand", t, dtypes[t]) for t in tensors]
        params += [Param("operand", f"all_{g}", self.real.name) for g in groups]
        params += [Param("result", f"to_{r.name}", self._cell(r)) for r in mine]
        body = [f"{t} = load_{dtypes[t]}({t}_rows, row)" for t in tensors]
        body += [f"{g} = load_{self.real.name}(all_{g}, group)" for g in groups]
        body += [f"{n} = {e.text}" for n, e in self.elements.items() if n in needed and n not in tensors]
        body += [line for r in mine for line in self._added(r)]
        return self._text(f"stage{stage}", params, body), params, groups, mine

    def _text(self, function: str, params: Sequence[Param], body: Sequence[str]) -> str:
        names = [f"{p.name}_rows" if p.name in self.tensors else p.name for p in params]
        lines = ["@njit(nogil=True)", f"def {function}({', '.join([*names, 'low', 'high'])}):"]
        arrays = zip(names, params, strict=True)
        lines += [f"    {name} = pointer_{p.dtype}({name})" for name, p in arrays if p.role != "number"]
        lines += ["    for row in range(low, high):", "        group = load_int64(codes, row) - base"]
        lines += [f"        {line}" for line in body]
        cells = ("load", "store", "pointer")
        used = sorted(word for word in _words(lines) if word in MATH or word.split("_")[0] in cells)
        head = ["import numpy as np", "from numba import njit"]
        head += [f"from redalg.kernels.cpu.memory import {', '.join(used)}"]
        head += [f"INF = np.{self.real.name}(np.inf)", f"NEG_INF = np.{self.real.name}(-np.inf)"]
        return "\n".join([*head, *lines]) + "\n"

    def _need(self, name: str, needed: dict[str, None]) -> None:
        if name in needed:
            return
        if name in self.elements:
            for other in self.elements[name].reads:
                self._need(other, needed)
        needed[name] = None

    def _cell(self, r: Reduced) -> str:
        if r.kind != "f":
            return "int64"
        return "float64" if r.how in SUMS else str(self.real.name)

    def _added(self, r: Reduced) -> list[str]:
        cell, to = self._cell(r), f"to_{r.name}"
        held = f"load_{cell}({to}, group)"
        if r.how in SUMS:
            value = {"f": f"np.float64({r.element})", "b": f"(1 if {r.element} else 0)"}.get(r.kind, r.element)
            return [f"store_{cell}({to}, group, {held} + {value})"]
        if r.how in EXTREMA:
            return [f"store_{cell}({to}, group, {EXTREMA[r.how]}_{_suffix(self.real)}({held}, {r.element}))"]
        default = "1" if r.how == "any_over" else "0"
        test = r.element if r.how == "any_over" else f"not {r.element}"
        return [f"if {test}:", f"    store_{cell}({to}, group, {default})"]

    def start(self, r: Reduced, shape: tuple[int, ...]) -> np.ndarray:
        """Before the first row."""
        first = {"max_over": -np.inf, "min_over": np.inf, "all_over": 1}.get(r.how, 0)
        return np.full(shape, first, self._cell(r))

    def joined(self, r: Reduced, parts: np.ndarray) -> np.ndarray:
        """The segments' values as one (1, groups, 1), in the dtype of the lift."""
        if r.how in SUMS:
            found = parts.sum(axis=0)
        elif r.how in ("max_over", "any_over"):
            found = parts.max(axis=0)
        else:
            found = parts.min(axis=0)
        found = found.astype(bool) if r.how in QUANTIFIERS else found.astype(self.real) if r.kind == "f" else found
        return found[None, :, None]


def _words(lines: Sequence[str]) -> set[str]:
    return {node.id for node in ast.walk(parse("\n".join(lines))) if isinstance(node, ast.Name)}


def _suffix(real: np.dtype) -> str:
    return "f64" if real.itemsize == 8 else "f32"


# --- from a printed lift to phases -----------------------------------------------------------------------------------


class _Read:
    """Statements of a lift in order. `names`: what a name of the text stands for now."""

    def __init__(self, tape: Tape, tensors: Mapping[str, str]) -> None:
        if tape.lengths or tape.starts or np.dtype(tape.real).char not in "fd":
            raise Unsupported("positions and lengths")
        self.phases = Phases(np.dtype(tape.real))
        self.names: dict[str, str] = {}
        self.params = {p.name: key for p, key in zip(tape.function.parameters, tape.keys, strict=True)}
        self.loads = tensors
        self.count = 0
        for s in tape.function.body:
            self._statement(s)
        self.phases.dtypes = [np.dtype(bool) if d == "b" else d for d in self.phases.dtypes]

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _statement(self, s: Any) -> None:
        if isinstance(s, Return):
            assert isinstance(s.value, ast.List)
            self.phases.results = [self._group(self._value(e)) for e in s.value.elts]
        elif isinstance(s, If):
            self._watch(s)
        elif isinstance(s, Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name):
            if s.targets[0].id == "masked":
                return
            self.names[s.targets[0].id] = self._value(s.value)
        else:
            raise Unsupported(type(s).__name__)

    def _watch(self, s: If) -> None:
        """``if not np.all(np.isfinite(x))``: what is not finite is left to the other way."""
        found = [e for e in ast.walk(s.test) if isinstance(e, ast.Name) and e.id in self.names]
        if len(found) != 1 or not isinstance(s.test, ast.UnaryOp) or names_in(s.test) - {"np", found[0].id}:
            raise Unsupported("a condition")
        name = self.names[found[0].id]
        if name in self.phases.known:
            self.phases.watched.append(name)
            return
        zero = self._element("-", [name, name])
        self.phases.watched.append(self._reduction("fixed_sum", zero))

    def _value(self, e: Any) -> str:
        """The name of an element or of a value of groups."""
        if isinstance(e, ast.Name):
            if e.id not in self.names:
                raise Unsupported(e.id)
            return self.names[e.id]
        if not isinstance(e, ast.Call):
            return self._constant(e)
        name = ast.unparse(e.func)
        if name == "entered":
            return self._entered(e)
        if name == "left":
            found = self._value(e.args[0])
            self.phases.dtypes.append(_dtype(ast.unparse(e.args[3]), self.phases.real))
            return found
        if name == "REAL" and not any(isinstance(n, ast.Name) and n.id in self.params for n in ast.walk(e)):
            return self._constant(e.args[0])
        if name == "REAL":
            return self._computed(e, [])
        args = [self._value(a) for a in e.args if ast.unparse(a) not in ("masked", "None")]
        if any(a in self.phases.elements and self.phases.elements[a].stage >= 0 for a in args):
            return self._applied(name, e, args)
        return self._computed(e, args)

    def _constant(self, e: Any) -> str:
        text = ast.unparse(e)
        if any(isinstance(n, ast.Name) and n.id != "np" for n in ast.walk(e)):
            raise Unsupported(text)
        value = eval(text, {"np": np})
        name = self.fresh("c")
        kind = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"
        word = {float("inf"): "INF", -float("inf"): "NEG_INF"}.get(value)
        typed = word or (f"np.{self.phases.real.name}({value!r})" if kind == "f" else repr(value))
        self.phases.elements[name] = Element(name, typed, kind, -1)
        self.phases.values.append((-1, name, compile(typed, "<constant>", "eval")))
        return name

    def _entered(self, e: ast.Call) -> str:
        source = e.args[0]
        if not isinstance(source, ast.Subscript) or not isinstance(source.value, ast.Name):
            raise Unsupported("an argument")
        name, real = source.value.id, ast.unparse(e.args[1]) in ("REAL", f"np.{self.phases.real.name}")
        key, place = self.params[name], ast.unparse(source.slice)
        if key in self.loads and real and place in ("(None, :, :)", "None, :, :"):
            made = self.fresh("x")
            self.phases.tensors[made] = key
            self.phases.elements[made] = Element(made, made, "f", 0)
            if self.loads[key] != self.phases.real.name:
                return self._element_text(f"np.{self.phases.real.name}({made})", "f", [made])
            return made
        if real and place in ("(None, :, None)", "None, :, None"):
            made = self.fresh("g")
            self.phases.given[made], self.phases.known[made] = key, 0
            return made
        raise Unsupported(f"{name}[{place}]")

    def _computed(self, e: ast.Call, args: list[str]) -> str:
        """What is made of values of groups alone."""
        stage = max((self.phases.known.get(a, 0) for a in args), default=0)
        given = iter(args)
        named = [ast.unparse(a) not in ("masked", "None") for a in e.args]
        arguments = [next(given) if name else "None" for name in named] if args else None
        kept = [f"{k.arg}={ast.unparse(k.value)}" for k in e.keywords if k.arg not in ("out",)]
        if arguments is None:
            text = ast.unparse(e)
            for name, key in self.params.items():
                if key not in ("n",) and name in names_in(e):
                    raise Unsupported(text)
        else:
            text = f"{ast.unparse(e.func)}({', '.join([*arguments, *kept])})"
        if isinstance(e.func, ast.Name) and (e.func.id in SUMS or e.func.id.endswith("_over")):
            raise Unsupported("a reduction of what does not vary")
        made = self.fresh("g")
        self.phases.known[made] = stage
        self.phases.values.append((stage, made, compile(text, "<groups>", "eval")))
        return made

    def _group(self, name: str) -> str:
        if name not in self.phases.known:
            raise Unsupported("a result by row")
        return name

    # --- elements ----------------------------------------------------------------------------------------------------

    def _applied(self, name: str, e: ast.Call, args: list[str]) -> str:
        if name in (*SUMS, *EXTREMA, *QUANTIFIERS):
            if ast.unparse(e.keywords[0].value) != "(2,)":
                raise Unsupported("another axis")
            return self._reduction(name, args[0])
        if name in INFIX:
            return self._element(INFIX[name], args)
        suffix = _suffix(self.phases.real)
        if name == "np.square":
            return self._element("*", [args[0], args[0]])
        if name in ("np.where", "chosen", "select"):
            kinds = {self._kind(a) for a in args[1:]}
            return self._element_text(f"({args[1]} if {args[0]} else {args[2]})", max(kinds, key="bif".index), args)
        if name == "np.logical_not":
            return self._element_text(f"(not {args[0]})", "b", args)
        if name == "as_float":
            return self._element_text(f"np.{self.phases.real.name}({args[0]})", "f", args[:1])
        if name == "integer_power":
            power = int(ast.literal_eval({k.arg: k.value for k in e.keywords}["e"]))
            return self._element_text("(" + " * ".join([args[0]] * power) + ")", "f", args)
        if name in CALLS and f"{CALLS[name]}_{suffix}" in MATH and all(self._kind(a) == "f" for a in args):
            return self._element_text(f"{CALLS[name]}_{suffix}({', '.join(args)})", "f", args)
        raise Unsupported(name)

    def _kind(self, name: str) -> str:
        return self.phases.elements[name].kind if name in self.phases.elements else "f"

    def _element(self, sign: str, args: list[str]) -> str:
        kinds = {self._kind(a) for a in args}
        if sign in "+-*/" and kinds != {"f"}:
            raise Unsupported("arithmetic of integers")
        return self._element_text(f"({args[0]} {sign} {args[1]})", "f" if sign in "+-*/" else "b", args)

    def _element_text(self, text: str, kind: str, args: Sequence[str]) -> str:
        stage = max(self._stage(a) for a in args)
        made = self.fresh("e")
        self.phases.elements[made] = Element(made, text, kind, stage, tuple(dict.fromkeys(args)))
        return made

    def _stage(self, name: str) -> int:
        found = self.phases.elements.get(name)
        return found.stage if found is not None else self.phases.known[name]

    def _reduction(self, how: str, element: str) -> str:
        found = self.phases.elements[element]
        if (how in QUANTIFIERS) != (found.kind == "b") and not (how in SUMS and found.kind in "bi"):
            raise Unsupported(f"{how} of {found.kind}")
        made = self.fresh("r")
        self.phases.reduced.append(Reduced(made, element, how, found.kind, max(0, found.stage)))
        self.phases.known[made] = max(0, found.stage) + 1
        return made


def _dtype(text: str, real: np.dtype) -> np.dtype:
    return {"REAL": real, "np.int64": np.dtype(np.int64), "np.bool": np.dtype(bool)}.get(text) or np.dtype(object)


# --- running ---------------------------------------------------------------------------------------------------------


class GroupLift:
    """The states of all groups of a chunk. `first`: from the first element of every group to where its anchors start.

    Raises: Unsupported.
    """

    def __init__(self, tape: Tape, tensors: Mapping[str, str]) -> None:
        if not set(tensors.values()) <= LOADED:
            raise Unsupported("a dtype")
        self.phases = _Read(tape, tensors).phases
        if any(d.hasobject for d in self.phases.dtypes):
            raise Unsupported("a result")
        dtypes = {name: tensors[key] for name, key in self.phases.tensors.items()}
        self.stages = []
        for stage in range(self.phases.stages):
            text, params, groups, mine = self.phases.loop(stage, dtypes)
            run = functions(text, [f"stage{stage}"], params)[f"stage{stage}"]
            self.stages.append((run, params, groups, mine))
        self.namespace = {**tape.names(), "as_float": as_float, "np": np, "INF": np.inf, "NEG_INF": -np.inf}
        counting = functions(COUNTING, ["counting"], _COUNTED)
        self.counting = counting["counting"]

    def counted(self, codes: np.ndarray, base: int, span: int) -> tuple[np.ndarray, np.ndarray]:
        """How many rows each code has, and the first of them."""
        cuts = _cuts(len(codes), span)
        counts = np.zeros((len(cuts) - 1, span), np.int64)
        first = np.full((len(cuts) - 1, span), len(codes), np.int64)

        def work(low: int, high: int) -> None:
            for k in range(low, high):
                at = (codes.ctypes.data, base, counts[k].ctypes.data, first[k].ctypes.data)
                self.counting(*at, cuts[k], cuts[k + 1])

        share(len(cuts) - 1, threads(), work)
        return counts.sum(axis=0), first.min(axis=0)

    def longest(self, counts: np.ndarray, rows: int) -> int:
        """Elements that are added up one by one, at most."""
        most = max((len(mine) for *_, mine in self.stages), default=1)
        cuts = _cuts(rows, len(counts) * most)
        return min(int(counts.max(initial=0)), -(-rows // (len(cuts) - 1)))

    def __call__(
        self,
        codes: np.ndarray,
        base: int,
        counts: np.ndarray,
        arrays: Mapping[str, np.ndarray],
        starts: Mapping[str, np.ndarray],
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """The parts of the state by code, and the codes at which something is not finite."""
        span, phases = len(counts), self.phases
        env: dict[str, Any] = dict(self.namespace)
        env["n"] = counts[None, :, None]
        for name, key in phases.given.items():
            env[name] = np.ascontiguousarray(starts[key], phases.real)[None, :, None]
        held = {name: np.ascontiguousarray(arrays[key]) for name, key in phases.tensors.items()}
        self._values(env, -1)
        self._values(env, 0)
        for stage, (run, params, groups, mine) in enumerate(self.stages):
            self._loop(run, params, groups, mine, codes, base, span, held, env)
            self._values(env, stage + 1)
        bad = np.zeros(span, bool)
        for name in [*phases.watched, *phases.results]:
            x = np.broadcast_to(env[name], (1, span, 1))[0, :, 0]
            if x.dtype.kind == "f":
                bad |= ~np.isfinite(x)
        found = [
            np.ascontiguousarray(np.broadcast_to(env[name], (1, span, 1))[0, :, 0], dtype)
            for name, dtype in zip(phases.results, phases.dtypes, strict=True)
        ]
        return found, bad

    def _values(self, env: dict[str, Any], stage: int) -> None:
        for at, name, code in self.phases.values:
            if at == stage:
                env[name] = eval(code, env)

    def _loop(
        self,
        run: Callable[..., Any],
        params: Sequence[Param],
        groups: Sequence[str],
        mine: Sequence[Reduced],
        codes: np.ndarray,
        base: int,
        span: int,
        held: Mapping[str, np.ndarray],
        env: dict[str, Any],
    ) -> None:
        cuts = _cuts(len(codes), span * len(mine))
        flat = {g: np.broadcast_to(env[g], (1, span, 1))[0, :, 0] for g in groups}
        known = {g: np.ascontiguousarray(x, self.phases.real) for g, x in flat.items()}
        parts = {r.name: self.phases.start(r, (len(cuts) - 1, span)) for r in mine}

        def work(low: int, high: int) -> None:
            for k in range(low, high):
                words: list[Any] = []
                for p in params:
                    if p.name == "codes":
                        words.append(codes.ctypes.data)
                    elif p.name == "base":
                        words.append(base)
                    elif p.name in held:
                        words.append(held[p.name].ctypes.data)
                    elif p.role == "result":
                        words.append(parts[p.name.removeprefix("to_")][k].ctypes.data)
                    else:
                        words.append(known[p.name.removeprefix("all_")].ctypes.data)
                run(*words, cuts[k], cuts[k + 1])

        share(len(cuts) - 1, threads(), work)
        for r in mine:
            env[r.name] = self.phases.joined(r, parts[r.name])


def _cuts(rows: int, values: int) -> list[int]:
    """Where segments begin: short ones while their values have room, two where there are many groups."""
    wanted = max(1, rows // SEGMENT)
    segments = max(1, min(wanted, max(2, ROOM // max(1, values))))
    return [rows * k // segments for k in range(segments + 1)]


COUNTING = """from numba import njit
from redalg.kernels.cpu.memory import load_int64, pointer_int64, store_int64
@njit(nogil=True)
def counting(codes, base, counts, first, low, high):
    codes = pointer_int64(codes)
    counts = pointer_int64(counts)
    first = pointer_int64(first)
    for row in range(low, high):
        group = load_int64(codes, row) - base
        seen = load_int64(counts, group)
        if seen == 0:
            store_int64(first, group, row)
        store_int64(counts, group, seen + 1)
"""
_COUNTED = (
    Param("operand", "codes", "int64"),
    Param("number", "base", "int64"),
    Param("result", "counts", "int64"),
    Param("result", "first", "int64"),
)


@lru_cache(maxsize=64)
def group_lift(program: Program, tensors: tuple[tuple[str, str], ...]) -> GroupLift | None:
    """The loops of a program's lift for tensors of these dtypes, by their keys; None where it has none."""
    try:
        return GroupLift(program.rows, dict(tensors))
    except Unsupported:
        return None


__all__ = ["GroupLift", "Unsupported", "group_lift"]
