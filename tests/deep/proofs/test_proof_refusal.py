"""Certificates of refusals: every witness of the engine holds without it, and what is false or damaged does not."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import pytest

import redalg as ra
from benchmarks.harness.refusals import REFUSED
from redalg.certify.refusal import exported
from redalg.graph.node import Node, fn, power, sub, tensor
from redalg.language.spec import Spec
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.numbers.duals import Dual, Duals
from redalg.proofs.numbers.enclosure import Interval
from redalg.proofs.numbers.value_maps import UNKNOWN
from redalg.proofs.numbers.values import Numbers
from redalg.proofs.refusals.document import Refusal
from redalg.proofs.refusals.proof import Streams, regular, regular_rational
from redalg.verdicts.witness import refute_output, refute_stage
from tests.deep.engine.test_witness import INSEPARABLE, OUTPUTS, J, total
from tests.support.places import ROOT

UNDECIDED = {"first element above the mean"}


def of(node: Node, witness: Any) -> Refusal:
    """With a second output, so that every axis has a tensor."""
    spec = Spec.from_nodes({"y": node, "z": tensor("z", ("i", "j"))})
    return Refusal.from_json(exported(spec, node, witness).to_json())


@cache
def refused(name: str) -> Refusal:
    return ra.verdict(ra.parse(REFUSED[name])).certificate


@pytest.mark.parametrize("name", sorted(set(REFUSED) - UNDECIDED))
def test_a_refused_spec_has_a_certificate_that_holds(name: str) -> None:
    c = refused(name)
    again = Refusal.from_json(c.to_json())
    assert again == c and hash(again) == hash(c) and pickle.loads(pickle.dumps(c)) == c
    found, verdict = again.verify(), ra.verdict(ra.parse(REFUSED[name]))
    assert found.excluded_slots == verdict.witness.slots_excluded >= 9 and str(found) == verdict.scope


@pytest.mark.parametrize("name", INSEPARABLE)
def test_a_witness_against_a_stage_holds_without_the_engine(name: str) -> None:
    stage = total(INSEPARABLE[name])
    assert of(stage, refute_stage(stage, J)).verify().excluded_slots >= 9


@pytest.mark.parametrize("name", sorted(set(OUTPUTS) - {"exp(z)"}))
def test_a_jacobian_of_an_output_holds_without_the_engine(name: str) -> None:
    found = of(OUTPUTS[name], refute_output(OUTPUTS[name], J)).verify()
    assert found.excluded_slots >= 9 and "any ⊕" in found.scope


def test_a_certificate_speaks_of_the_spec_and_of_no_other() -> None:
    spec = ra.parse(REFUSED["mean absolute deviation"])
    derived = ra.parse("m = mean[j](x[j]); return y = sum[j]((x[j] - m)**2)")
    assert refused("mean absolute deviation").spec_hash == ra.verdict(spec).certificate.spec_hash
    assert refused("mean absolute deviation").spec_hash != refused("relu of deviations").spec_hash
    with pytest.raises(AttributeError):
        _ = ra.verdict(derived).certificate.excluded_slots  # type: ignore[union-attr]


def test_no_certificate_without_a_witness() -> None:
    error = ra.NotDecomposable("a", "b", "c", "d", stage="s")
    with pytest.raises(ra.CertificateError, match="it has no witness"):
        _ = error.certificate
    verdict = ra.verdict(ra.parse(REFUSED["relu of deviations"]))
    again = pickle.loads(pickle.dumps(verdict))
    assert again.certificate == verdict.certificate
    verdict.refuted = (verdict.refuted[0], total(fn("tanh", tensor("x", J))))
    with pytest.raises(ra.CertificateError, match="rewriting"):
        _ = verdict.certificate


# --- what is false ---------------------------------------------------------------------------------------------------


def fabricated(node: Node, k: int, kind: str = "minor") -> Refusal:
    """A certificate whose entries are right, against something that may have a form."""
    real = refute_stage(total(INSEPARABLE["abs"]), J) if kind == "minor" else refute_output(OUTPUTS["abs"], J)
    assert real is not None
    c = of(node, real)
    c = replace(
        c,
        excluded_slots=k,
        places=c.places[:k],
        points=c.points[:k],
        streams=c.streams[:k],
        matrix=tuple(row[:k] for row in c.matrix[:k]),
    )
    streams = Streams(c)
    columns = [streams.column(q, 900) for q in range(k)]
    return replace(c, matrix=tuple(tuple(_stated(columns[q][p]) for q in range(k)) for p in range(k)))


def _stated(v: Any) -> Any:
    if isinstance(v, Fraction):
        return v
    low, high = Numbers().reals.ends(v)
    return low - Fraction(1, 10**60), high + Fraction(1, 10**60)


x = tensor("x", J)
MEAN = INSEPARABLE["abs"].args[0].args  # x and minus its mean
SQUARE = total(power(INSEPARABLE["abs"].args[0], 2))


def test_a_stage_of_finite_rank_is_not_refuted_beyond_its_rank() -> None:
    assert fabricated(SQUARE, 3).verify().excluded_slots == 3
    with pytest.raises(CertificateError, match="its determinant is 0"):
        fabricated(SQUARE, 4).verify()
    with pytest.raises(CertificateError, match="its determinant is 0"):
        fabricated(SQUARE, 12).verify()


def test_a_stage_of_finite_rank_over_numbers_that_are_not_rational_is_not_decided() -> None:
    shifted = total(fn("exp", INSEPARABLE["abs"].args[0]))
    assert fabricated(shifted, 1).verify().excluded_slots == 1
    with pytest.raises(CertificateError, match="decided by enclosures|steps of work"):
        fabricated(shifted, 2).verify()


def test_an_output_of_a_small_state_has_no_large_jacobian() -> None:
    assert fabricated(SQUARE, 2, "jacobian").verify().excluded_slots == 2
    with pytest.raises(CertificateError, match="its determinant is 0"):
        fabricated(SQUARE, 3, "jacobian").verify()


def test_a_point_at_which_the_output_has_no_derivative_proves_nothing() -> None:
    kink = total(fn("abs", sub(x, Node("reduce", (x,), OUTPUTS["maximum"].attr))))
    with pytest.raises(CertificateError):
        fabricated(kink, 5, "jacobian").verify()


# --- what is damaged -------------------------------------------------------------------------------------------------


def mutated(c: Refusal, change: Callable[[Any], Any]) -> Refusal:
    data = json.loads(c.to_json())
    change(data)
    return Refusal.from_json(json.dumps(data))


def put(*path: Any) -> Callable[[Any], Any]:
    """Set the entry at all but the last step to the last."""
    *steps, last, value = path

    def change(data: Any) -> None:
        for step in steps:
            data = data[step]
        data[last] = value

    return change


def stage_over(data: Any) -> None:
    """The stage is replaced by one that is in no output."""
    data["terms"].append(["abs", data["stage"]])
    data["terms"].append(["reduce", "sum", ["j"], None, len(data["terms"]) - 1])
    data["stage"] = len(data["terms"]) - 1


def both(*changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda data: [change(data) for change in changes]


FALSE: dict[str, Callable[[Any], Any]] = {
    "an entry": put("matrix", 2, 3, "7/11"),
    "an entry's sign": lambda d: put("matrix", 0, 0, str(-Fraction(d["matrix"][0][0]) - 1))(d),
    "an enclosure beside the entry": put("matrix", 2, 3, ["10", "11"]),
    "an enclosure upside down": lambda d: put("matrix", 0, 0, [str(Fraction(d["matrix"][0][0]) + 1), "-100"])(d),
    "two rows exchanged": lambda d: d["matrix"].reverse(),
    "a point": put("points", 4, "x", "1/3"),
    "a point and its place in one stream": both(put("points", 0, "x", "1/3"), put("streams", 0, 0, "x", "1/3")),
    "a place": put("places", 0, 19),
    "a place outside": put("places", 0, 10**9),
    "a negative place": put("places", 0, -1),
    "a suffix": put("streams", 5, -1, "x", "1/3"),
    "a stream without its suffix": lambda d: d["streams"][5].pop(),
    "an empty stream": put("streams", 5, []),
    "one stream twice": lambda d: put("streams", 5, d["streams"][4])(d),
    "a claim beyond the matrix": put("claim", "excluded_slots", 13),
    "a claim of nothing": put("claim", "excluded_slots", 0),
    "another class": put("class", "(prod, power)"),
    "a Jacobian's class": put("class", "jacobian"),
    "another kind": put("kind", "jacobian"),
    "another stage": stage_over,
    "the body as stage": lambda d: put("stage", d["terms"][d["stage"]][-1])(d),
    "an output as stage": lambda d: put("stage", d["spec"]["outputs"]["y"])(d) or put("class", "jacobian")(d),
    "fewer rows": lambda d: d["matrix"].pop(),
    "fewer columns": lambda d: d["matrix"][0].pop(),
    "fewer streams": lambda d: d["streams"].pop(),
    "fewer points": lambda d: d["points"].pop(),
    "no points": both(*(put(k, []) for k in ("points", "places", "streams", "matrix"))),
    "a truth for a number": put("streams", 5, -1, "x", True),
    "an array for a number": put("streams", 5, -1, "x", ["1"]),
    "another tensor": put("streams", 5, -1, {"w": "1"}),
    "a further tensor": put("streams", 5, -1, {"x": "1", "w": "1"}),
    "a parameter": put("parameters", {"w": "1"}),
    "the stream's size": put("sizes", {"j": 5}),
    "a position without a size": put("positions", {"i": 3}),
    "the axis": put("spec", "axis", ["k"]),
    "the hash": put("spec_hash", "0" * 32),
    "another spec": lambda d: d["terms"][-1].__setitem__(1, "prod"),
    "the format": put("format", "redalg certificate"),
    "the version": put("version", 2),
    "the version as a truth": put("version", True),
    "a float": put("points", 0, "x", 0.5),
    "a division by zero": put("points", 0, "x", "1/0"),
    "a further field": put("status", "proved"),
    "a missing field": lambda d: d.pop("positions"),
    "an unknown class": put("class", "(max, +)"),
    "deep arrays": put("points", 0, "x", [[[[[[[[[["1"]]]]]]]]]]),
    "a long stream": lambda d: d["streams"][0].extend(d["streams"][0] * 100),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_is_damaged_is_refused_with_four_parts(name: str) -> None:
    with pytest.raises(CertificateError) as caught:
        mutated(refused("mean absolute deviation"), FALSE[name]).verify()
    assert all((caught.value.what, caught.value.where, caught.value.why, caught.value.fix))


TRUE: dict[str, Callable[[Any], Any]] = {
    "a smaller claim": put("claim", "excluded_slots", 5),
    "a wider entry": lambda d: put("matrix", 1, 1, [str(Fraction(d["matrix"][1][1]) - 1), "100"])(d),
    "the streams in another order": both(
        lambda d: d["streams"].reverse(), lambda d: [row.reverse() for row in d["matrix"]]
    ),
    "the points in another order": both(*(lambda d, k=k: d[k].reverse() for k in ("points", "places", "matrix"))),
    "an unused size": put("sizes", {"q": 3}),
}


@pytest.mark.parametrize("name", TRUE)
def test_what_stays_true_is_proved(name: str) -> None:
    assert mutated(refused("mean absolute deviation"), TRUE[name]).verify().excluded_slots in (5, 12)


def test_entries_that_are_not_rational_must_be_enclosed_and_tightly_enough_to_be_checked() -> None:
    c = refused("Gauss kernel at the mean")
    low, high = c.matrix[3][4]  # type: ignore[misc]
    for entry in (high, (low - 1, low), (high, high + 1)):
        rows = [list(row) for row in c.matrix]
        rows[3][4] = entry
        with pytest.raises(CertificateError):
            replace(c, matrix=tuple(map(tuple, rows))).verify()


JACOBIAN: dict[str, Callable[[Any], Any]] = {
    "no variable": put("variable", None),
    "a variable that is not there": put("variable", "w"),
    "streams that begin differently": lambda d: d["streams"][3].insert(0, d["streams"][3][-1]),
    "the class of a sum": put("class", "(sum, ×)"),
    "a point on a kink": lambda d: [put("streams", q, 0, "x", "0")(d) for q in range(len(d["streams"]))],
}


@pytest.mark.parametrize("name", JACOBIAN)
def test_a_damaged_jacobian_is_refused(name: str) -> None:
    c = of(OUTPUTS["abs"], refute_output(OUTPUTS["abs"], J))
    assert c.verify().excluded_slots >= 9
    with pytest.raises(CertificateError):
        mutated(c, JACOBIAN[name]).verify()


def test_values_outside_a_domain_are_no_evidence() -> None:
    body = INSEPARABLE["|x - weighted mean|"]
    c = of(total(body), refute_stage(total(body), J))
    with pytest.raises(CertificateError, match="domain"):
        mutated(c, put("streams", 0, -1, "w", "-1")).verify()
    masked = total(INSEPARABLE["masked"])
    with pytest.raises(CertificateError, match="position"):
        mutated(of(masked, refute_stage(masked, J)), put("positions", {"i": 10**6})).verify()


def test_a_determinant_of_enclosures() -> None:
    numbers = Numbers(200)
    near = [[Fraction(1), Fraction(1)], [Fraction(1), 1 + Fraction(1, 10**90)]]
    enclosed = [[numbers.reals.between(v, v + Fraction(1, 10**30)) for v in row] for row in near]
    assert regular_rational(near) and not regular(enclosed, 200) and not regular(near, 200) and regular(near, 400)
    singular = [[Fraction(1), Fraction(2), Fraction(3)], [Fraction(0), Fraction(1), Fraction(1)], [Fraction(1)] * 3]
    singular[2] = [a + b for a, b in zip(singular[0], singular[1], strict=True)]
    assert not regular_rational(singular) and not regular(singular, 400)
    assert regular([[Fraction(0), Fraction(1)], [Fraction(1, 3), Fraction(0)]], 100)


# --- derivatives -----------------------------------------------------------------------------------------------------

MP = mpmath.MPContext()
MP.dps = 60
MAPS = "exp log sigmoid tanh log1p expm1 erf erfc sin cos tan sinh cosh asin acos atan asinh atanh"
STEPS = "abs relu sign floor ceil"


@pytest.mark.parametrize("name", [*MAPS.split(), *STEPS.split(), "acosh"])
def test_a_derivative_is_enclosed(name: str) -> None:
    at = Fraction(13, 7) if name == "acosh" else Fraction(3, 7)
    duals = Duals()
    found = duals.map(name, Dual(at, {0: Fraction(3)}))
    special: dict[str, Any] = {
        "log": MP.ln,
        "sigmoid": lambda v: 1 / (1 + MP.exp(-v)),
        "relu": lambda v: v,
        "abs": lambda v: v,
        **dict.fromkeys(("sign", "floor", "ceil"), lambda v: MP.mpf(1)),
    }
    expected = 3 * MP.diff(special.get(name) or getattr(MP, name), MP.mpf(at.numerator) / at.denominator)
    (tangent,) = found.tangents.values()
    middle = tangent if isinstance(tangent, Fraction) else sum(duals.reals.ends(tangent)) / 2
    assert abs(MP.mpf(middle.numerator) / middle.denominator - expected) < MP.mpf(10) ** -25
    assert not isinstance(tangent, Interval) or tangent.is_narrow(180)


def test_sums_products_powers_and_choices_have_the_derivatives_of_calculus() -> None:
    d, two, half = Duals(), Fraction(2), Fraction(1, 2)
    a, b = Dual(Fraction(3), {0: Fraction(1)}), Dual(Fraction(-2), {1: Fraction(1)})
    assert d.add([a, b, two, a]).tangents == {0: 2, 1: 1}
    assert d.mul([a, b, a, two]).tangents == {0: -24, 1: 18}
    assert d.power(b, Fraction(3)).tangents == {1: 12} and d.power(b, Fraction(-1)).tangents == {1: Fraction(-1, 4)}
    assert d.power(Dual(Fraction(4), {0: two}), half).tangents == {0: half}
    assert d.extremum("max", [a, b, two]) is a and d.extremum("min", [a, two]) == 2
    assert d.select(d.compare("lt", b, a), a, b) is a and d.compare("eq", a, two) is False
    assert d.ranked([b, a, two], 2) == [(1, a), (2, two)]
    assert d.add([a, float("-inf")]) == float("-inf")


def test_where_there_is_no_derivative_nothing_is_returned() -> None:
    d, a = Duals(), Dual(Fraction(3), {0: Fraction(1)})
    zero = Dual(Fraction(0), {0: Fraction(1)})
    assert d.extremum("max", [a, Fraction(3)]) is UNKNOWN and d.position("argmax", [a, Fraction(3)]) is UNKNOWN
    assert d.compare("le", a, Fraction(3)) is UNKNOWN and d.cast(a, "int8") is UNKNOWN
    for name in ("abs", "relu", "sign", "floor"):
        found = d.map(name, zero)
        assert found is UNKNOWN or UNKNOWN in found.tangents.values()
    assert d.map("log", zero) is UNKNOWN


# --- without the engine ----------------------------------------------------------------------------------------------

ALONE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in ("sympy", "numpy", "mpmath", "numba") or (top == "redalg" and name != "redalg" and not
        name.startswith("redalg.proofs")):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from redalg.proofs.refusals.document import Refusal
import redalg.proofs.falsification.falsify
print(Refusal.from_json(open(sys.argv[1]).read()).verify())
"""  # noqa: E501


def test_it_is_checked_with_everything_else_blocked(tmp_path: Path) -> None:
    file = tmp_path / "refusal.json"
    file.write_text(refused("mean absolute deviation").to_json(indent=1))
    run = subprocess.run([sys.executable, "-c", ALONE, str(file)], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "(sum, ×) over j: no form with fewer than 12 slots", run.stderr
