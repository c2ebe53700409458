"""The API reference, from the docstrings: ``python docs/reference.py build/docs`` writes one page per namespace.

What is public is what a namespace lists in ``__all__``, and the classes of objects that calls hand out (`HANDED_OUT`).
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

NAMESPACES = ("redalg", "redalg.testing", "redalg.proofs", "redalg.pictures", "redalg.explore", "redalg.display")
MODULES = {"display", "explore", "pictures"}  # names of the package that have pages of their own
HANDED_OUT = {  # page -> classes that no call of a user's names, each with the call that gives one
    "redalg": {
        "redalg.run.Run": 'form.compile("numpy")',
        "redalg.kernels.cpu.run.CpuRun": 'form.compile("cpu")',
        "redalg.kernels.cuda.run.CudaRun": 'form.compile("cuda")',
        "redalg.verdicts.witness.Witness": "verdict.witness",
        "redalg.kernels.traffic.Traffic": "ra.traffic(spec, sizes)",
    },
    "redalg.proofs": {
        "redalg.proofs.checker.check.Report": "form.certificate.verify()",
    },
}

# Methods that other modules of the library call, and no user.
INTERNAL = {"Monoid.from_nodes", "Monoid.combine_nodes", "Monoid.action_nodes", "Spec.from_nodes", "CudaRun.planned"}
# Names whose docstring is somebody else's.
OWN = {
    "oo": """Infinity: SymPy's ``oo``, under a name at hand. A masked score is ``-ra.oo``.

>>> import redalg as ra
>>> k, s = ra.tensors("k[j] s[j]")
>>> masked = ra.where(k > 0, s, -ra.oo)
>>> ra.reference(ra.Spec(m=ra.max(masked, "j")), k=[0.0, 1.0], s=[7.0, 5.0])
array(5.)
""",
    "inf": """Infinity, the same as ``oo``; the text grammar has both words.

>>> import redalg as ra
>>> x = ra.tensors("x[j]")
>>> ra.reference(ra.Spec(m=ra.norm(x, "j", p=ra.inf)), x=[3.0, -4.0])
array(4.)
""",
    "nan": """No number: what a selection gives where there is no value.

>>> import redalg as ra
>>> x = ra.tensors("x[j]")
>>> ra.reference(ra.Spec(y=ra.where(x > 0, x, ra.nan)), x=[1.0, -1.0])
array([ 1., nan])
""",
}


class Entry(NamedTuple):
    """One public name: where it is listed, the object, and the call that gives one where it is not named by users."""

    namespace: str
    name: str
    thing: Any
    given_by: str = ""

    @property
    def doc(self) -> str:
        if self.name in OWN:
            return OWN[self.name]
        own = self.thing if inspect.isroutine(self.thing) or inspect.isclass(self.thing) else type(self.thing)
        return inspect.getdoc(own) or ""

    def markdown(self, member: Any = None) -> str:
        """The docstring of the name, or of one of its members, ready for a page."""
        doc = self.doc if member is None else described(member)
        own = self.thing if hasattr(self.thing, "__module__") else type(self.thing)
        return text(doc, imports(doc, sys.modules[own.__module__], self.namespace))


def entries(namespace: str) -> list[Entry]:
    module = importlib.import_module(namespace)
    names = [n for n in module.__all__ if not n.startswith("__") and n not in MODULES]
    found = [Entry(namespace, name, getattr(module, name)) for name in names]
    for path, call in HANDED_OUT.get(namespace, {}).items():
        home, _, name = path.rpartition(".")
        found.append(Entry(namespace, name, getattr(importlib.import_module(home), name), call))
    return found


def members(thing: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties a class defines, or inherits from a class of redalg."""
    if not inspect.isclass(thing):
        return
    seen = set()
    for cls in thing.__mro__:
        if not cls.__module__.startswith("redalg"):
            continue
        for name, value in vars(cls).items():
            if name.startswith("_") or name in seen or f"{thing.__name__}.{name}" in INTERNAL:
                continue
            if inspect.isfunction(value) or isinstance(value, property | cached_property | classmethod | staticmethod):
                seen.add(name)
                yield name, value


def described(member: Any) -> str:
    """The docstring of a method or property."""
    return inspect.getdoc(member.func if isinstance(member, cached_property) else member) or ""


def signature(name: str, thing: Any) -> str:
    if isinstance(thing, property | cached_property):
        return name
    try:
        found = inspect.signature(thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing)
    except (TypeError, ValueError):
        return name
    parameters = [p.replace(annotation=p.empty) for p in found.parameters.values() if p.name not in ("self", "cls")]
    return f"{name}{found.replace(parameters=parameters, return_annotation=found.empty)}"


def imports(doc: str, module: Any, namespace: str) -> list[str]:
    """What the examples of a docstring take from their module without saying so, as statements to paste before them."""
    used, bound = set(), set()
    for node in ast.walk(ast.parse("".join(e.source for e in doctest.DocTestParser().get_examples(doc)))):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.arg | ast.ExceptHandler):
            bound.add((node.arg if isinstance(node, ast.arg) else node.name) or "")
    found = []
    for name in sorted((used - bound) & set(vars(module))):
        value = vars(module)[name]
        if inspect.ismodule(value):
            found.append(f"import {value.__name__}" + f" as {name}" * (value.__name__ != name))
        else:
            public = name in importlib.import_module(namespace).__all__
            found.append(f"from {namespace if public else module.__name__} import {name}")
    return found


def text(doc: str, before: Sequence[str] = ()) -> str:
    """A docstring as Markdown: examples in fences, with the imports they need, everything else as it stands."""
    lines, inside, first = [], False, True
    for line in doc.splitlines():
        if line.startswith(">>> ") and not inside:
            lines += ["```python", *(f">>> {statement}" for statement in before if first), line]
            inside, first = True, False
        elif inside and not line:
            lines += ["```", ""]
            inside = False
        else:
            lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


def page(namespace: str) -> str:
    parts = [f"# {namespace}", text(inspect.getdoc(importlib.import_module(namespace)) or "")]
    for entry in entries(namespace):
        callable_ = inspect.isroutine(entry.thing) or inspect.isclass(entry.thing)
        parts.append(f"## {entry.name}")
        if entry.given_by:
            parts.append(f"Given by `{entry.given_by}`.")
        elif callable_ and not issubclass(entry.thing if inspect.isclass(entry.thing) else object, Exception):
            parts.append(f"`{namespace}.{signature(entry.name, entry.thing)}`")
        parts.append(entry.markdown())
        for name, value in members(entry.thing):
            parts += [f"### .{signature(name, value)}", entry.markdown(value)]
    return "\n\n".join(part for part in parts if part) + "\n"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for namespace in NAMESPACES:
        (folder / f"{namespace}.md").write_text(page(namespace))
    listing = [f"* [{n}]({n}.md): {', '.join(f'`{e.name}`' for e in entries(n))}" for n in NAMESPACES]
    (folder / "README.md").write_text("\n".join(["# API reference", "", *listing, ""]))
    print(f"{len(NAMESPACES) + 1} pages: {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs"))
