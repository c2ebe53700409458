"""Text: the same spec as from Python, read back as printed, never evaluated, refused with the place."""

from fractions import Fraction

import pytest
import sympy

import redalg as ra
from redalg.graph import node as g
from tests.unit.test_expr import refused

x, y = ra.tensors("x[i,j] y[j]")
w = ra.tensors("w[j]", positive=True)
mask = ra.tensors("mask[j]", bool=True)
s = ra.scalar("s")
affine = ra.Monoid(
    "affine",
    lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]),
    (1, 0),
    actions=(("scale", lambda state, h: (state[0], state[1] * h)),),
)
longest = ra.Monoid("longest", ra.maximum, -ra.oo, commutative=True)


def test_text_builds_the_same_spec_as_python():
    m = ra.max(y, "j")
    assert ra.parse("m = max[j](y[j]); s = sum[j](exp(y[j] - m)); return s") == ra.Spec(s=ra.sum(ra.exp(y - m), "j"))
    text = """
        m = max[j](x[i,j])         # one statement a line is fine too
        p = exp(x[i,j] - m)
        return y = p / sum[j](p), lse = m + log(sum[j](p))
    """
    p = ra.exp(x - ra.max(x, "j"))
    total = ra.sum(p, "j")
    assert ra.parse(text) == ra.Spec(y=p / total, lse=ra.max(x, "j") + ra.log(total))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-y[j]**2", -(y**2)),
        ("2**-1 * y[j]", y / 2),
        ("y[j]**s**2", y ** (s**2)),
        ("1 - 2 - y[j]", -1 - y),
        ("y[j] / 2 / s", y / 2 / s),
        ("2 * (y[j] + s) * y[j]", 2 * (y + s) * y),
        ("0.1 * y[j]", 0.1 * y),
        ("1e-3 + y[j]", y + 0.001),
        (
            "where(y[j] > 0 and not y[j] >= s or y[j] == 1, y[j], -oo)",
            ra.where(((y > 0) & sympy.Not(y >= s, evaluate=False)) | ra.eq(y, 1), y, -ra.oo),
        ),
        ("where(index[j] <= index(i), x[i,j], size[j])", ra.where(ra.index("j") <= ra.index("i"), x, ra.size("j"))),
        ("mean[i,j](x[i,j]) + logsumexp[j](y[j])", ra.mean(x, ["i", "j"]) + ra.logsumexp(y, "j")),
        ("topk[j:2](y[j]).values", ra.topk(y, 2, "j").values),
        ("topk[j:2:best](y[j]).indices", ra.topk(y, 2, "j", name="best").indices),
        ("cast(y[j] * pi, float8_e4m3fn)", ra.cast(y * sympy.pi, "float8_e4m3fn")),
        ("maximum(y[j], 0, s) + cosh(s)", ra.maximum(y, 0, s) + sympy.cosh(s)),
    ],
)
def test_expressions(text, value):
    names = [t for t in (x, y, s) if str(t) in text.replace("y[j]", "y").replace("x[i,j]", "x").replace("sum", "")]
    used = [t for t in names if t in sympy.sympify(value).free_symbols]
    decls = ", ".join(str(t.decl) for t in used)
    assert ra.parse(f"tensors {decls}; return o = {text}") == ra.Spec(o=value, tensors=tuple(used))


SPECS = {
    "domains": lambda: ra.Spec(o=ra.sum(w * x, "j") / ra.sum(w, "j")),
    "order": lambda: ra.Spec(o=x * 1, order={"o": "j i"}, empty={"o": 0.1}),
    "infinite empty": lambda: ra.Spec(o=x, empty={"o": -ra.oo}),
    "names of tensors": lambda: ra.Spec(y=y + 1, x=x, t1=ra.exp(x) + ra.exp(x) ** 2, max=ra.max(y, "j")),
    "equal outputs": lambda: ra.Spec(a=ra.exp(y), b=ra.exp(y)),
    "several cascades": lambda: ra.Spec(a=ra.sum(ra.exp(y - ra.max(y, "j")), "j"), b=ra.argmax(y, "j")),
    "conditions": lambda: ra.Spec(
        o=ra.where(ra.any(mask & (y > s), "j") | ~mask, y, ra.where(ra.ne(y, 0), y, sympy.nan))
    ),
    "selected condition": lambda: ra.Spec(o=ra.where(y > 0, mask, y < s)),
    "constants": lambda: ra.Spec(o=y * sympy.pi + sympy.E - 0.3 * x + sympy.Rational(2, 7), c=sympy.sqrt(2) * s),
    "powers": lambda: ra.Spec(o=ra.mean(y**2, "j") ** -1.5 / (x - s) ** 2, p=2 * (x + s) * y, q=-(x + s) * y / 3),
    "complex": lambda: ra.Spec(o=ra.sum(ra.tensors("z[j]", complex=True) * (2 + 1j), "j")),
    "monoid": lambda: ra.Spec(o=ra.reduce((x, y), "j", affine)[1] + ra.reduce(y, "j", longest)),
    "deep": lambda: ra.Spec(o=_nested(70)),
}


def _nested(depth):
    e = y
    for k in range(depth):
        e = ra.relu(ra.tanh(e + k) * s)
    return e


@pytest.mark.parametrize("name", SPECS)
def test_printed_specs_are_read_back(name):
    spec = SPECS[name]()
    again = ra.parse(str(spec))
    assert again == spec, str(spec)
    assert str(again) == str(spec)


def test_floats_print_as_decimals_and_thirds_as_quotients():
    assert str(ra.Spec(o=0.1 * y)) == "o = 0.1 * y[j]; return o"
    assert str(ra.Spec(o=y / 3)) == "o = 1/3 * y[j]; return o"
    assert str(ra.Spec(o=-y + 0.5)) == "o = 1/2 - y[j]; return o"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "'the end'"),
        ("m = max[j](x[j])", "'the end'"),
        ("return", "'the end'"),
        ("return o = x[j]; m = 1", "'m'"),
        ("return o = x[j] $ 2", "the character '$'"),
        ("return o = x[j] ^ 2", "the character '^'"),
        ("return o = (x[j]", "'the end'"),
        ("return o = x[j] + x[i,k]", "x[i,k]"),
        ("return o = x[j] + x", "x"),
        ("return o = x[j,j]", "the axis 'j' named twice"),
        ("x = 1; return o = x[j]", "'['"),
        ("x = 1; x = 2; return x", "the name 'x'"),
        ("sum = 1; return sum", "the name 'sum'"),
        ("return o = sum(x[j])", "sum without an axis"),
        ("return o = sum[j](x[j], 2)", "2 arguments of sum"),
        ("return o = exp(x[j], 2)", "2 argument(s) of exp"),
        ("return o = where(x[j], 1, 2)", "x[j]"),
        ("return o = x[j] and 1", "x[j]"),
        ("return o = (x[j] > 0) * 2", "the condition x > 0"),
        ("return o = 0 < x[j] < 1", "'<'"),
        ("return o = exp", "'exp'"),
        ("return o = __import__('os')", 'the character "\'"'),
        ("return o = x[j].values", "'.'"),
        ("return o = topk[j:2](x[j])", "a TopK of 2 parts"),
        ("return o = topk[j:2](x[j]).best", "'best'"),
        ("return o = reduce[j:m](x[j])", "the monoid 'm'"),
        ("return o = 9**9**9 * x[j]", "the power 9**387420489"),
        ("return o = 1e999 * x[j]", "the number 1e999"),
        ("return o = 1e-400 * x[j]", "the number 1e-400"),
        ("return o = x[j], o = 2", "the output 'o'"),
        ("return tensors = x[j]", "the output 'tensors'"),
        ("return o = 2*x[j], order = x[j]", "the output 'order'"),
        ("e = sum[j](x[j]); return dtypes = 2*e, e", "the output 'dtypes'"),
        ("empty = sum[j](x[j]); return empty", "the name 'empty'"),
        ("tensors x[j] postive; return o = x[j]", "the domain 'postive'"),
        ("tensors x[j], y; return o = x[j]", "tensors=['x[j]', 'y'], about y"),
        ("order p = j; return o = x[j]", "the output 'p'"),
        ("return o = " + "(" * 5000, "the nesting"),
        ("return o = " + "9" * 5000, "the number"),
        ("return o = 1 / 0 * x[j]", "the complex infinity `zoo`"),
        ("return o = where((q - q)/(q - q) > 0, 1, x[j])", "nan > 0"),
    ],
)
def test_refusals_name_the_place(text, what):
    error = refused(lambda: ra.parse(text))
    assert error.what == what


@pytest.mark.parametrize("mantissa", ["1", "2.5", "0.004", "0.0", "0", "10"])
@pytest.mark.parametrize("zeros", [0, 310, 323, 324, 400])
def test_a_decimal_is_0_only_where_its_digits_are(mantissa, zeros):
    for number in (f"{mantissa}e-{zeros}", "0." + "0" * zeros + mantissa.replace(".", "")):
        text = f"return o = {number} + x[j]"
        if float(number):
            constants = {n.attr for n in g.walk(ra.parse(text).outputs["o"]) if n.op == "const"}
            assert Fraction(float(number)) in constants
        elif float(mantissa):
            error = refused(lambda text=text: ra.parse(text))
            assert error.what == f"the number {number}" and "10**-400" in error.fix
        else:
            assert ra.parse(text) == ra.parse("return o = x[j]")


def test_only_strings_are_parsed():
    assert "int" in refused(lambda: ra.parse(3)).what


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("mean(y, j)", "return y = mean[j](…)"),
        ("u = y[j]; exp(u)", "return y = exp(…)"),
        ("max = 3", "bind another name"),
        ("u = 1; u = 2", "bind another name"),
        ("y = sum[j](y[j])", "end with `return y`"),
        ("", "end with `return y`"),
    ],
)
def test_a_statement_that_is_none_says_how_one_is_written(text, fix):
    with pytest.raises(ra.RedalgError) as error:
        ra.parse(text)
    assert error.value.fix == fix


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("return a = y[j],\n  b = y[j]**2", "return a = y[j], b = y[j]**2"),
        ("u = y[j] +\n\n  s\nreturn a = u", "u = y[j] + s; return a = u"),
        ("u = y[j]  # a comment\n  - s  # another\n  * 2\nreturn a = u", "u = y[j] - s*2; return a = u"),
        ("u =\n  y[j]\nreturn\n  u", "u = y[j]; return u"),
        ("tensors y[j],\n  s\nreturn a = y[j]\n  /s\n", "tensors y[j], s; return a = y[j]/s"),
        (
            "c = y[j] > 0 and\n y[j] < s\nreturn a = where(not\n c, 1, 0)",
            "return a = where(not (y[j] > 0 and y[j] < s), 1, 0)",
        ),
        ("t = topk[j:2](y[j])\n  .values\nreturn t", "t = topk[j:2](y[j]).values; return t"),
        ("u = y[j]\nreturn u\n\n", "u = y[j]; return u"),
    ],
)
def test_a_line_goes_on_where_no_statement_ends(text, same):
    assert ra.parse(text) == ra.parse(same)


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("return a = round(y[j])", "the function 'round'", "floor"),
        ("return a = sigmod(y[j])", "the function 'sigmod'", "write sigmoid"),
        ("return a = median[j](y[j])", "the reduction 'median'", "write mean"),
        ("u = y[j]; return a = u(1 + u)", "a call of u", "write *"),
        ("return a = softmax(y[j])", "softmax without an axis", "write softmax[j]"),
        ("return a = max(y[j], 0)", "max without an axis", "maximum"),
        ("return a = logsumexp(y[j])", "logsumexp without an axis", "write logsumexp[j]"),
        ("return a = x[i,d] @ y[d]", "the character '@'", "sum[d]"),
    ],
)
def test_what_is_no_function_is_named(text, what, fix):
    error = refused(lambda: ra.parse(text))
    assert error.what == what and fix in error.fix
