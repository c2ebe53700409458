"""Programs, classes and kernels for tensor cores that the tests share: of the catalog and of texts of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import redalg as ra
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Module, Program
from redalg.kernels.pipeline import wgmma_tiles
from redalg.kernels.programs import lower
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.level.cascade_print import emit_tensor
from redalg.kernels.tile.match import Class, Outside, classified
from redalg.kernels.tile.plan import Anchor, Fallback, Frozen, Running, TensorPlan
from tests.support import forms

# What the class holds of the catalog. The test of the class has the whole list; this one is for kernels.
ATTENTION = (
    "attention",
    "attention_alibi",
    "attention_bias",
    "attention_causal",
    "attention_grouped_query",
    "attention_masked",
    "attention_relu",
    "attention_scaled",
    "attention_sigmoid",
    "attention_sink",
    "attention_softcap",
    "attention_window",
    "attention_with_lse",
)
CLASS = (*ATTENTION, "splade")
OPTIMISTIC = (
    "attention",
    "attention_alibi",
    "attention_bias",
    "attention_causal",
    "attention_grouped_query",
    "attention_scaled",
    "attention_softcap",
    "attention_window",
    "attention_with_lse",
)
ANCHORS: dict[str, Anchor] = {"running": Running(), "frozen": Frozen(), "fallback": Fallback()}
SCORES = "s = sum[d](Q[h,i,d]*K[h,j,d]); "
WEIGHED = "m = max[j](u); p = exp(u - m); O = sum[j](p*V[h,j,e])/sum[j](p); return O"


def text_of(value: str, scores: str = SCORES, rest: str = WEIGHED, declared: str = "") -> str:
    """Attention over ``u = value``, a text over the scores ``s``."""
    return f"{declared}{scores}u = {value}; {rest}"


def form_of(text: str) -> Any:
    """The form of a catalog entry by name, or of a text, over its axis or j."""
    return forms.form_of(text) if text in ra.catalog else forms.form_of_text(text, "j", 2)


def dtypes_of(spec: Any, kind: str = "bfloat16", others: str = "float32") -> dict[str, Any]:
    """`kind` for what is multiplied (names of one capital), `others` for what is added; scalars by value."""
    found: dict[str, Any] = {}
    for t in spec.tensors:
        word = "bool" if "bool" in t.domain else "integer" if "integer" in t.domain else "float"
        if not t.axes:
            found[t.name] = {"bool": bool, "integer": int, "float": float}[word]
        else:
            real = kind if t.name.isupper() else others
            found[t.name] = {"bool": "bool", "integer": "int64", "float": real}[word]
    return found


def program_of(text: str, kind: str = "bfloat16", **dtypes: Any) -> Program:
    form = form_of(text)
    return lower(form, dtypes_of(form.spec, kind) | dtypes)


def class_of(text: str, kind: str = "bfloat16", **dtypes: Any) -> Class:
    """The class of a program; float32 is multiplied as tf32."""
    return classified(program_of(text, kind, **dtypes), tf32=kind == "float32")


def outside(text: str, kind: str = "bfloat16", **dtypes: Any) -> str:
    """Why it is not in the class; "" if it is."""
    program = program_of(text, kind, **dtypes)
    try:
        classified(program)
    except Outside as why:
        return str(why)
    return ""


def sizes_of(made: Class, terms: int = 128, columns: int | None = None, length: int = 4096) -> dict[str, int]:
    """Lengths of all axes: 4096 rows and elements, a few batches."""
    arrays = (*made.program.operands, *made.program.results)
    sizes = {a: 4 for array in arrays for a in array.axes} | {made.row: length, made.stream: length, made.terms: terms}
    return sizes | ({made.column: terms if columns is None else columns} if made.column else {}) | made.program.lengths


def views_of(program: Program, sizes: Mapping[str, int]) -> dict[str, View]:
    return {o.name: View.contiguous(tuple(sizes[a] for a in o.axes)) for o in program.operands if not o.number}


def planned(
    made: Class, terms: int = 128, columns: int | None = None, anchor: str = "running"
) -> tuple[Class, TensorPlan]:
    sizes = sizes_of(made, terms, columns)
    made, plan = wgmma_tiles(made, sizes, views_of(made.program, sizes), H200)
    return made, replace(plan, anchor=ANCHORS[anchor])


def module_of(made: Class, terms: int = 128, columns: int | None = None, anchor: str = "running") -> Module:
    return emit_tensor(*planned(made, terms, columns, anchor))
