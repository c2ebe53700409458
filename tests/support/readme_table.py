"""The verdicts in docs/catalog.md, computed by the engine: ``python -m tests.support.readme_table`` writes them."""

from __future__ import annotations

import redalg as ra
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "catalog.md"
START, END = "<!-- table: written by tests/support/readme_table.py -->\n", "<!-- end of table -->"

DERIVED = """
    softmax logsumexp cross_entropy softmax_entropy attention_causal attention_sink attention_latent
    attention_with_statistics moe_renormalised layer_norm layer_norm_gemm batch_norm variance skewness kurtosis
    covariance pearson_correlation linear_regression weighted_variance moment_of_inertia two_norm_safe
    max_deviation three_sigma_outlier weighted_geometric_mean splade zero_point_gemm
""".split()
NEAR_MISSES = {
    "sum of distances from the maximum": "m = max[j](x[j]); return y = sum[j](abs(x[j] - m))",
    "how often the maximum occurs": "m = max[j](x[j]); return y = sum[j](where(eq(x[j], m), 1, 0))",
    "elements on the same side of 0 as the mean": "u = mean[j](x[j]); return y = sum[j](where(x[j] * u > 0, 1, 0))",
}
REFUSED = {
    "mean absolute deviation": "u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))",
    "sum of relu(x - mean)": "u = mean[j](x[j]); return y = sum[j](relu(x[j] - u))",
    "count of x > mean": "u = mean[j](x[j]); return y = sum[j](where(x[j] > u, 1, 0))",
    "sum of tanh(x - max x)": "m = max[j](x[j]); return y = sum[j](tanh(x[j] - m))",
    "sum of exp(x · mean)": "u = mean[j](x[j]); return y = sum[j](exp(x[j] * u))",
    "sum of exp(-(x - mean)²)": "u = mean[j](x[j]); return y = sum[j](exp(-(x[j] - u)**2))",
    "product of (x + mean)": "u = mean[j](x[j]); return y = prod[j](x[j] + u)",
    "denominator of a softmax of z-scores": (
        "u = mean[j](x[j]); v = mean[j]((x[j] - u)**2); z = (x[j] - u) / sqrt(v); return y = sum[j](exp(z))"
    ),
}


def row(name: str, description: str, spec: ra.Spec, axis: str | tuple[str, ...] | None = None) -> str:
    verdict = ra.verdict(spec, axis=axis)
    if isinstance(verdict, ra.Form):
        slots = _count(sum(slot.name != "n" for slot in verdict.slots), "slot")
        return f"| {name} | {description} | {slots}, {_count(verdict.passes.reads, 'pass', 'es')} |"
    if isinstance(verdict, ra.NotDecomposable):
        size, value = len(verdict.witness.points), verdict.witness.value
        return f"| {name} | {description} | refused: a {verdict.witness.kind} of {size} rows is {_brief(value)} |"
    return f"| {name} | {description} | undecided |"


def _count(number: int, what: str, ending: str = "s") -> str:
    return f"{number} {what}{ending * (number != 1)}"


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 16 else "not 0"


def table() -> str:
    lines = ["| | definition | verdict |", "|---|---|---|"]
    for name in DERIVED:
        entry = ra.catalog.entry(name)
        lines.append(row(f"`{name}`", entry.description, entry.spec, entry.axis))
    for label, text in {**NEAR_MISSES, **REFUSED}.items():
        lines.append(row("", f"{label}: `{text}`", ra.parse(text)))
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The table that the page holds."""
    return page.partition(START)[2].partition(END)[0]


def replaced(page: str) -> str:
    head, start, rest = page.partition(START)
    return head + start + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
