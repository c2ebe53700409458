"""The catalog: at least 45 specs, distinct after renaming, with sources; every one derives and runs in pieces."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import redalg as ra
from redalg.text.terminal import difference
from tests.support.forms import form_of
from tests.support.sample import by_name

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


@by_name()
def test_an_entry_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    entry = ra.catalog.entry(name)
    assert entry.name == name
    assert len(entry.description) > 8 and not entry.description.endswith(".")
    assert any(
        1800 <= int(word) <= 2026 for word in entry.source.replace(",", " ").replace(":", " ").split() if word.isdigit()
    )
    assert set(entry.draws) <= {decl.name for decl in entry.spec.tensors}
    assert set(entry.sizes) >= {axis for decl in entry.spec.tensors for axis in decl.axes}


@by_name()
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


@by_name()
def test_samples_are_reproducible_and_of_the_sizes_asked_for(name: str) -> None:
    entry = ra.catalog.entry(name)
    axis = entry.axis if isinstance(entry.axis, str) else entry.axis[0]
    first, again = entry.sample(3, **{axis: 6}), entry.sample(3, **{axis: 6})
    assert list(first) == [decl.name for decl in entry.spec.tensors]
    for decl in entry.spec.tensors:
        assert np.array_equal(first[decl.name], again[decl.name])
        assert not decl.axes or first[decl.name].shape == tuple({**entry.sizes, axis: 6}[a] for a in decl.axes)


# --- textbook definitions, never forms --------------------------------------------------------------------------------


def test_the_catalog_holds_definitions_only() -> None:
    """No entry module mentions what belongs to a form."""
    from redalg.specs.collection import SECTIONS

    source = "\n".join(inspect.getsource(module) for module in SECTIONS.values())
    assert not [word for word in ("Slot", "Anchor", "Plan", "Form(", "lift", "finalize") if word in source]


# --- derived, run in pieces, compared with the definition ------------------------------------------------------------


@by_name()
def test_a_spec_derives_and_agrees_with_its_definition(name: str) -> None:
    entry = ra.catalog.entry(name)
    form = form_of(name)
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


@by_name([n for n in NAMES if ra.catalog.entry(n).assume])
def test_a_cast_inside_a_reduction_is_refused_unless_told_to_commute(name: str) -> None:
    entry = ra.catalog.entry(name)
    assert isinstance(ra.verdict(entry.spec, axis=entry.axis), ra.NotDecomposable)
