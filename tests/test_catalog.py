"""The catalog: at least 45 specs, distinct after renaming, with sources; every one derives and runs in pieces."""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections import defaultdict

import numpy as np
import pytest

import redalg as ra
from redalg.graph import Node, walk
from redalg.terminal import difference

NAMES = sorted(ra.catalog)
REQUIRED = """
    softmax softmax_denominator logsumexp log_softmax cross_entropy cross_entropy_label_smoothing entropy
    kl_divergence attention attention_scaled attention_causal attention_window attention_alibi attention_softcap
    attention_sink attention_grouped_query attention_latent attention_with_lse attention_with_statistics
    moe_softmax_topk moe_sigmoid moe_renormalised absmax absmax_int8_gemm fp8_per_token_gemm
    zero_point_int8_gemm layer_norm rms_norm group_norm batch_norm layer_norm_gemm rms_norm_gemm mean variance
    skewness kurtosis covariance pearson_correlation linear_regression weighted_mean weighted_variance
    moment_of_inertia geometric_mean harmonic_mean p_norm two_norm_safe cosine_similarity min_max_scaling
    max_deviation argmax top_k splade linf_distance softmin boltzmann_average log_mean_exp
""".split()


def test_everything_that_was_asked_for_is_there() -> None:
    assert len(ra.catalog) >= 45
    assert not set(REQUIRED) - set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    entry = ra.catalog.entry(name)
    assert entry.name == name
    assert len(entry.description) > 8 and not entry.description.endswith(".")
    assert any(
        1800 <= int(word) <= 2026 for word in entry.source.replace(",", " ").replace(":", " ").split() if word.isdigit()
    )
    assert set(entry.draws) <= {decl.name for decl in entry.spec.tensors}
    assert set(entry.sizes) >= {axis for decl in entry.spec.tensors for axis in decl.axes}


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_a_spec_that_survives_printing(name: str) -> None:
    spec = ra.catalog[name]
    assert isinstance(spec, ra.Spec)
    assert spec is ra.catalog[name], "built once"
    assert ra.parse(str(spec)) == spec


def test_the_catalog_is_a_mapping_that_explains_a_wrong_name() -> None:
    assert list(ra.catalog) == [e.name for section in ra.catalog.sections().values() for e in section]
    assert "atention" not in ra.catalog
    with pytest.raises(KeyError):
        ra.catalog["atention"]
    with pytest.raises(ra.RedalgError, match="attention"):
        ra.catalog.entry("atention")


def test_an_unknown_name_is_a_key_error_in_four_parts() -> None:
    with pytest.raises(KeyError) as caught:
        ra.catalog["atention"]
    assert isinstance(caught.value, ra.RedalgError) and str(caught.value).startswith("refused:")
    assert ra.catalog.get("atention") is None and "attention" in caught.value.why
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.fix


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_reproducible_and_of_the_sizes_asked_for(name: str) -> None:
    entry = ra.catalog.entry(name)
    axis = entry.axis if isinstance(entry.axis, str) else entry.axis[0]
    first, again = entry.sample(3, **{axis: 6}), entry.sample(3, **{axis: 6})
    assert list(first) == [decl.name for decl in entry.spec.tensors]
    for decl in entry.spec.tensors:
        assert np.array_equal(first[decl.name], again[decl.name])
        assert not decl.axes or first[decl.name].shape == tuple({**entry.sizes, axis: 6}[a] for a in decl.axes)


# --- distinct after renaming -----------------------------------------------------------------------------------------


def fingerprint(spec: ra.Spec) -> str:
    """A number that no renaming of tensors, axes, outputs and scalars changes; different ones prove specs distinct.

    Colour refinement: leaves and axes get colours from what they look like, operations from their parts, then leaves
    and axes from the operations they occur in, a few times over.
    """
    roots = list(spec.outputs.values())
    nodes = list(walk(*roots))
    names: dict[object, str] = defaultdict(str)  # colours of tensor names and axes, by name
    colours: dict[Node, str] = {}
    for _ in range(4):
        colours = {}
        for node in nodes:
            parts = [colours[a] for a in node.args]
            ordered = parts if node.op in ("pow", "where", "lt", "le", "cast", "reduce") else sorted(parts)
            colours[node] = _colour(node.op, *ordered, *_own(node, names))
        uses = defaultdict(list)
        for node in nodes:
            for argument in node.args:
                uses[argument].append(colours[node])
        seen = defaultdict(list)
        for node in nodes:
            mark = _colour(colours[node], *sorted(uses[node]), str(roots.count(node)))
            if node.op == "tensor":
                seen[("tensor", node.attr.name)].append(mark)
            for place, axis in enumerate(_axes(node)):
                seen[("axis", axis)].append(_colour(mark, str(place)))
        names = defaultdict(str, {key: _colour(*sorted(marks)) for key, marks in seen.items()})
    return _colour(*sorted(colours[root] for root in roots))


def _axes(node: Node) -> tuple[str, ...]:
    if node.op in ("tensor", "reduce"):
        return tuple(node.attr.axes)
    return (node.attr,) if node.op in ("index", "size") else ()


def _own(node: Node, names: dict[object, str]) -> list[str]:
    axes = [names["axis", a] for a in _axes(node)]
    if node.op == "tensor":
        return [str(sorted(node.attr.domain)), names["tensor", node.attr.name], *axes]
    if node.op == "reduce":
        extra = node.attr.extra[0] if node.attr.kind.startswith("topk") else node.attr.extra
        return [node.attr.kind, str(extra), *axes]
    return axes if node.op in ("index", "size") else [str(node.attr)]


def _colour(*parts: str) -> str:
    return hashlib.blake2b("|".join(parts).encode(), digest_size=12).hexdigest()


def test_specs_are_distinct_after_renaming() -> None:
    groups = defaultdict(list)
    for name in NAMES:
        groups[fingerprint(ra.catalog[name])].append(name)
    assert not [group for group in groups.values() if len(group) > 1]


def test_the_fingerprint_ignores_names_and_nothing_else() -> None:
    text = "m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m) * w[j]); return s"
    renamed = "m = max[b](y[a,b]); s = sum[b](exp(y[a,b] - m) * v[b]); return s"
    other = "m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m) * w[i]); return s"
    assert fingerprint(ra.parse(text)) == fingerprint(ra.parse(renamed)) != fingerprint(ra.parse(other))


# --- textbook definitions, never forms --------------------------------------------------------------------------------


def test_the_catalog_holds_definitions_only() -> None:
    """No entry module mentions what belongs to a form."""
    from redalg.specs import SECTIONS

    source = "\n".join(inspect.getsource(module) for module in SECTIONS.values())
    assert not [word for word in ("Slot", "Anchor", "Plan", "Form(", "lift", "finalize") if word in source]


# --- derived, run in pieces, compared with the definition ------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_derives_and_agrees_with_its_definition(name: str) -> None:
    entry = ra.catalog.entry(name)
    form = ra.derive_incremental(entry.spec, axis=entry.axis, assume=entry.assume)
    assert form.passes.statistics == 1
    arguments = entry.sample(1)
    results, expected = form.compile("numpy")(**arguments), ra.reference(entry.spec, **arguments)
    if len(entry.spec.outputs) == 1:
        output = next(iter(entry.spec.outputs))
        results, expected = {output: results}, {output: expected}
    assert list(results) == list(expected) == list(entry.spec.outputs)
    for output, value in results.items():
        bound = 0.05 if entry.assume else 1e-11  # an assumed cast is off by the rounding of its narrow type
        assert difference(value, expected[output])[1] <= bound, output


@pytest.mark.parametrize("name", [n for n in NAMES if ra.catalog.entry(n).assume])
def test_a_cast_inside_a_reduction_is_refused_unless_told_to_commute(name: str) -> None:
    entry = ra.catalog.entry(name)
    assert isinstance(ra.verdict(entry.spec, axis=entry.axis), ra.NotDecomposable)
