"""What an audit found: per law, that it holds on so many samples, or the smallest counterexample found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redalg.proofs.audits.judge import Operator, Outcome, Verdict
from redalg.proofs.audits.search import Found
from redalg.proofs.audits.terms import NAMES, Law
from redalg.proofs.audits.text import hypothesis_text
from redalg.proofs.document.errors import RedalgError
from redalg.proofs.document.shown import Shown

SHOWN = 40  # elements of a chunk that are written out


@dataclass(frozen=True)
class Counterexample:
    """States (or chunks) by name, the demand they break, and what its two sides gave."""

    states: Mapping[str, Any]
    demand: str
    left: Any
    right: Any
    bound: float
    reproduces: bool = True

    def __str__(self) -> str:
        given = ", ".join(f"{k} = {plain(v)}" for k, v in self.states.items())
        found = f"{self.demand} fails{' for ' + given if given else ''}: {plain(self.left)}"
        found += "" if self.right is None else f" ≠ {plain(self.right)}"
        return found if self.reproduces else f"{found}, but not when it was computed again"


@dataclass(frozen=True)
class LawReport:
    """One law: `status` is "holds", "broken" or "not judged"; `claimed` says whether it counts."""

    name: str
    equation: str
    status: str
    samples: int = 0
    equality: str = ""
    claimed: bool = True
    counterexample: Counterexample | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.status == "broken":
            return f"broken{'' if self.claimed else ' (not claimed)'}: {self.counterexample}"
        if self.status == "not judged":
            return f"not judged: {self.reason}"
        return f"holds on {self.samples} samples, {self.equality}{'' if self.claimed else ' (not claimed)'}"


@dataclass(frozen=True)
class AuditReport(Shown):
    """The result of `redalg.proofs.audit`: ``.laws`` by name, ``.broken`` (names of claimed laws), ``.ok``.

    ``print(report)`` shows every law; ``report.hypothesis_test()`` is a test that reproduces what was found.

    >>> from redalg.proofs import audit
    >>> report = audit(lambda a, b: a - b, 0)
    >>> report.ok, report.broken, report["right identity"].status
    (False, ('associativity', 'left identity'), 'holds')
    >>> print(report["left identity"])
    broken: e ⊕ a = a fails for a = 1: -1 ≠ 1
    >>> [line for line in report.hypothesis_test().splitlines() if line.startswith("def test_")]
    ['def test_operator_associativity(a, b, c):', 'def test_operator_left_identity(a):']
    >>> audit(lambda a, b: a + b, 0, domain="finite", specials=()).require().ok
    True
    """

    name: str
    laws: Mapping[str, LawReport]
    dtype: str
    seed: int
    notes: tuple[str, ...] = ()
    operator: Operator | None = field(default=None, repr=False, compare=False)
    found: Mapping[str, tuple[Law, Found]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the claimed laws that do not hold."""
        return tuple(n for n, law in self.laws.items() if law.status == "broken" and law.claimed)

    @property
    def ok(self) -> bool:
        """Whether no claimed law was found broken. Laws that hold on samples are not proved."""
        return not self.broken

    def __getitem__(self, law: str) -> LawReport:
        return self.laws[law]

    def __str__(self) -> str:
        width = max(map(len, self.laws))
        lines = [f"audit of {self.name} in {self.dtype}, seed {self.seed}"]
        lines += [f"  {name:<{width}}  {law}" for name, law in self.laws.items()]
        return "\n".join([*lines, *(f"  note: {n}" for n in self.notes)])

    def require(self) -> AuditReport:
        """The report itself. Raises: RedalgError with the first counterexample if a claimed law is broken."""
        if self.ok:
            return self
        law = self.laws[self.broken[0]]
        fix = "correct the operator; report.hypothesis_test() is a test that fails until then"
        raise RedalgError(f"the operator {self.name}", f"the law {law.name}: {law.equation}", str(law), fix)

    def hypothesis_test(self, law: str | None = None, imports: str | None = None) -> str:
        """A Hypothesis test, ready to paste, that fails on the counterexample of `law` (default: of every broken law).

        The operator is imported from where it was defined, or its source is part of the text; `imports` replaces that
        by lines that define ``combine`` (and ``lift``, ``finalize``, ``definition`` where they were given).
        Where no law is broken the text tests the claimed ones.

        Raises: RedalgError for a law that was not judged.
        """
        assert self.operator is not None
        names = [law] if law is not None else list(self.broken or self._held())
        for name in names:
            if name not in self.found:
                why = self.laws[name].reason if name in self.laws else f"the laws are {', '.join(self.laws)}"
                raise RedalgError(f"the law {name!r}", "report.hypothesis_test", why, "name a law that was judged")
        return hypothesis_text(self.operator, self.name, {n: self.found[n] for n in names}, imports)

    def _held(self) -> list[str]:
        return [n for n, law in self.laws.items() if law.status == "holds" and law.claimed]


def law_report(op: Operator, law: Law, found: Found, claimed: bool) -> LawReport:
    equality = " and ".join(sorted(found.how))
    if found.case == () and found.check is None:
        if not found.samples:
            return LawReport(law.name, law.text(), "not judged", claimed=claimed, reason="no sample could be judged")
        return LawReport(law.name, law.text(), "holds", found.samples, equality, claimed)
    assert found.check is not None and found.verdict is not None
    states = {NAMES[k]: op.given(part) for k, part in enumerate(found.case)}
    left, right = sides(found.verdict)
    example = Counterexample(states, found.check.text(), left, right, found.verdict.bound, found.again)
    return LawReport(law.name, law.text(), "broken", found.samples, equality, claimed, example)


def sides(verdict: Verdict) -> tuple[Any, Any]:
    return _shown(verdict.left), None if verdict.right is None else _shown(verdict.right)


def _shown(outcome: Outcome) -> Any:
    if outcome.raised:
        return f"raises {outcome.raised}" if not outcome.raised.startswith("returns") else outcome.raised
    return outcome.numbers[0] if len(outcome.numbers) == 1 else outcome.numbers


def plain(value: Any) -> str:
    """A value as a reader wants it: Fractions as numbers, NumPy scalars without their type."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return _plain_list(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(plain, value))})"
    if hasattr(value, "tolist"):
        return plain(value.tolist()) if getattr(value, "ndim", 0) else plain(value.item())
    if isinstance(value, float) and abs(value) < 1e6 and value.is_integer():
        return str(int(value)) if value or str(value)[0] != "-" else "-0.0"
    return str(value) if not hasattr(value, "_fields") else repr(value)


def _plain_list(value: list[Any]) -> str:
    if len(value) <= SHOWN:
        return f"[{', '.join(map(plain, value))}]"
    same = all(v == value[0] for v in value)
    return f"[{plain(value[0])}] * {len(value)}" if same else f"[{plain(value[0])}, … {len(value)} in all]"
