"""Specs made to take long: every one gets a verdict, within one budget of steps for all that a verdict takes."""

from __future__ import annotations

import pytest

import redalg as ra
from redalg.algebra import work
from redalg.algebra.work import VERDICT, Exhausted, allowance, left, parts, spend, spent
from redalg.form import Form


def _product(size: int) -> str:
    return f"return y = mean[j]({'*'.join(f'(x{k}[j] - mean[j](x{k}[j]))' for k in range(size))})"


def _power(size: int) -> str:
    return f"return y = mean[j]((x[j] - mean[j](x[j]))**{size})"


def _nested(size: int, distinct: bool) -> str:
    names = [f"x{k * distinct}[j]" for k in range(size)]
    lines = [f"l0 = log(sum[j](exp({names[0]})))"]
    lines += [f"l{k} = log(sum[j](exp({names[k]} - l{k - 1})))" for k in range(1, size)]
    return "; ".join((*lines, f"return y = l{size - 1}"))


def _each(size: int, body: str) -> str:
    return "return " + ", ".join(f"v{k} = {body.replace('{k}', str(k))}" for k in range(1, size + 1))


def _chain(size: int, first: str, link: str) -> str:
    lines = [f"m0 = {first}", *(f"m{k} = {link.replace('{m}', f'm{k - 1}')}" for k in range(1, size))]
    return "; ".join((*lines, f"return y = m{size - 1}"))


def _sum(size: int, term: str) -> str:
    body = " + ".join(term.replace("{k}", str(k)).replace("{f}", str(k % 5 + 1)) for k in range(size))
    return ("m = mean[j](x[j]); " if "m)" in term else "") + f"return y = sum[j]({body})"


def _factors(size: int) -> str:
    return "m = mean[j](z[j]); return y = sum[j](" + "*".join(f"(x{k}[j] + m)" for k in range(size)) + ")"


def _choices(size: int, condition: str, value: str) -> str:
    parts = "".join(f"where({condition}, {value}, ".replace("{k}", str(k)) for k in range(size))
    return f"m = mean[j](x[j]); return y = sum[j]({parts}x[j]{')' * size})"


def _tower(size: int, name: str, inside: str) -> str:
    return f"m = mean[j](x[j]); return y = sum[j]({f'{name}(' * size}{inside}{')' * size})"


def _axes(size: int) -> str:
    return f"return y = sum[j](w[{','.join(f'i{k}' for k in range(size))},j]*(x[j] - mean[j](x[j])))"


SPECS = {
    "seven centred tensors": _product(7),
    "eight centred tensors": _product(8),
    "twelve centred tensors": _product(12),
    "50th power": _power(50),
    "100th power": _power(100),
    "400th power": _power(400),
    "power of 10^9": f"return y = sum[j]((x[j] + mean[j](x[j]))**{10**9})",
    "logsumexps of one tensor in one another": _nested(200, False),
    "logsumexps of 200 tensors in one another": _nested(200, True),
    "200 logsumexps": _each(200, "log(sum[j](exp(x{k}[j] - max[j](x{k}[j])))) + max[j](x{k}[j])"),
    "100 unlike logsumexps": _each(100, "log(sum[j](exp({k}*x{k}[j] + x{k}[j] - max[j](({k} + 1)*x{k}[j]))))"),
    "100 unlike variances": _each(100, "mean[j](({k}*x{k}[j]**2 + x{k}[j] - mean[j](x{k}[j]))**2)"),
    "40 tanh of means": _each(40, "mean[j](tanh(x{k}[j]*mean[j](x{k}[j])))"),
    "150 maxima": _each(150, "max[j](x[j] + {k})"),
    "60 softmaxes": _each(60, "sum[j](exp({k}*x[j] - max[j]({k}*x[j]))*v[j])/sum[j](exp({k}*x[j] - max[j]({k}*x[j])))"),
    "60 weighted variances": _each(60, "mean[j](w[j]*(x{k}[j] - sum[j](w[j]*x{k}[j])/sum[j](w[j]))**2)"),
    "58 powers of one deviation": "m = mean[j](x[j]); return "
    + ", ".join(f"v{k} = mean[j]((x[j] - m)**{k})" for k in range(2, 60)),
    "covariances of 14 tensors": "return "
    + ", ".join(
        f"c{a}_{b} = mean[j]((x{a}[j] - mean[j](x{a}[j]))*(x{b}[j] - mean[j](x{b}[j])))"
        for a in range(14)
        for b in range(a, 14)
    ),
    "quotients of products": _chain(100, "max[j](x[j])", "prod[j](x[j]/{m})"),
    "means of products": _chain(100, "mean[j](x[j])", "mean[j](x[j]*{m})"),
    "300 means of products": _chain(300, "mean[j](x[j])", "mean[j](x[j]*{m})"),
    "variances of variances": _chain(8, "mean[j](x[j])", "mean[j]((x[j] - {m})**2)"),
    "maxima of differences": _chain(150, "max[j](x[j])", "max[j](x[j] - {m})"),
    "roots": _chain(60, "sum[j](x[j]**2)", "sum[j](x[j]**2/sqrt({m}))"),
    "relu of deviations": _chain(40, "mean[j](x[j])", "mean[j](relu(x[j] - {m}))"),
    "wide sum": _sum(60, "(x[j] - m)**{f}*exp({k}*x[j])"),
    "wider sum": _sum(200, "(x[j] - m)**{f}*exp({k}*x[j])"),
    "400 tensors": _sum(400, "x{k}[j]"),
    "quotients": _sum(60, "1/(x[j]**2 + {k} + 1)*(x[j] - m)"),
    "poles beside a mean": _sum(10, "1/((x[j] - m)**2 + {k} + 1)"),
    "14 factors": "return y = sum[j](" + "*".join(f"(x{k}[j] + y{k}[j])" for k in range(14)) + ")",
    "10 factors with a mean": _factors(10),
    "20 factors with a mean": _factors(20),
    "square of 60 tensors": "m = mean[j](z[j]); return y = sum[j](("
    + " + ".join(f"x{k}[j]" for k in range(60))
    + " - m)**2)",
    "choices": _choices(40, "x[j] > {k}", "(x[j] - m)**2 + {k}"),
    "70 choices": _choices(70, "x[j] > {k}", "(x[j] - m)**2 + {k}"),
    "choices at a mean": _choices(40, "x[j] > {k}*m", "x[j] + {k}"),
    "tower of tanh": _tower(70, "tanh", "x[j] - m"),
    "tower of sin": _tower(40, "sin", "x[j] - m"),
    "tower of exp": _tower(60, "exp", "x[j] - m"),
    "24 axes": _axes(24),
    "constant of 2000 digits": f"return y = sum[j]({'9' * 2000}*(x[j] - mean[j](x[j]))**2)",
    "fraction of 500 digits": f"m = mean[j](x[j]); return y = sum[j]((x[j]*{'7' * 500}/{'3' * 500} - m)**12)",
    "60 exponentials": "m = max[j](x[j]); return y = sum[j]("
    + "*".join(f"exp({k}*(x[j] - m))" for k in range(60))
    + ")",
}


@pytest.mark.parametrize("name", SPECS)
def test_a_verdict_within_the_budget(name: str) -> None:
    spec = ra.parse(SPECS[name])
    with allowance(1 << 60, "steps"):
        found = ra.verdict(spec)
        counted = spent()
    assert 0 < counted <= VERDICT
    assert isinstance(found, Form | ra.NotDecomposable | ra.Undecided)
    if isinstance(found, ra.Undecided):
        assert found.what and found.where and found.why and found.fix and found.missing


LARGE = {  # refusals whose matrices take much work to prove
    "powers": "m = mean[j](x[j]); return y = sum[j](abs(x[j] - m)*("
    + " + ".join(f"x[j]**{k}*tanh(m)**{k}" for k in range(16))
    + "))",
    "many tanh": "m = mean[j](x[j]); return y = sum[j](" + " + ".join(f"tanh({k + 1}*x[j]*m)" for k in range(10)) + ")",
    "tower": f"m = mean[j](x[j]); return y = sum[j]({'tanh(' * 10}x[j]*m{')' * 10})",
    "log means": "m0 = mean[j](x[j]); "
    + "".join(f"m{k + 1} = log(mean[j](exp(x[j]*m{k}))); " for k in range(8))
    + "return y = m8",
    "product": "return y = prod[j](x[j] + tanh(sum[j](" + " + ".join(f"sin({k + 1}*x[j])" for k in range(20)) + ")))",
    "many tensors": "return y = sum[j](" + " + ".join(f"abs(x{k}[j] - mean[j](x{k}[j]))" for k in range(40)) + ")",
    "outputs": "u = sum[j](abs(x[j] - mean[j](x[j]))); return "
    + ", ".join(f"y{k} = exp(-{k}*u)*u**{k}" for k in range(1, 30)),
}


@pytest.mark.parametrize("name", [*LARGE, *SPECS])
def test_the_certificate_of_a_refusal_holds_within_its_budget(name: str) -> None:
    found = ra.verdict(ra.parse(LARGE.get(name) or SPECS[name]))
    if not isinstance(found, ra.NotDecomposable):
        return
    try:
        document = found.certificate
    except ra.CertificateError as unwritten:
        assert "rewriting" in str(unwritten) or "no witness" in str(unwritten)
        return
    assert document.verify().excluded_slots


@pytest.mark.parametrize("name", ["50th power", "logsumexps of 200 tensors in one another", "60 weighted variances"])
def test_a_spent_budget_is_named_with_what_it_went_into(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redalg.api.VERDICT", 400_000)
    found = ra.verdict(ra.parse(SPECS[name]))
    assert isinstance(found, ra.Undecided)
    assert "a budget of 400000 steps for one verdict, in " in found.missing
    assert "steps in the derivation" in found.why or "in the derivation" in found.missing
    assert "split its outputs" in found.fix


def test_independent_stages_take_work_in_proportion() -> None:
    def counted(size: int) -> int:
        spec = ra.parse(_each(size, "mean[j](({k}*x{k}[j]**2 + x{k}[j] - mean[j](x{k}[j]))**2)"))
        with allowance(1 << 60, "steps"):
            assert isinstance(ra.verdict(spec), Form)
            return spent()

    assert counted(24) < 2.3 * counted(12)


def test_allowances_share_the_steps_of_the_one_around_them() -> None:
    with allowance(1000, "steps", doing="all of it"):
        with allowance(1 << 20, "products", price=30, doing="products"):
            spend(20)
        assert (left(), parts()) == (400, {"products": 600})
        with pytest.raises(Exhausted, match="a budget of 1000 steps, in sums"), allowance(500, "sums", doing="sums"):
            spend(401)
        assert left() == 0
    with allowance(1000, "steps"):
        with pytest.raises(Exhausted), allowance(1 << 20, "sums", doing="sums", kept=300):
            spend(701)
        assert left() == 300  # what was kept is there for what comes after it
    assert left() == work.VERDICT
