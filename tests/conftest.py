"""Settings shared by all tests: a bare checkout works, Hypothesis profiles, the markers `gpu` and `deep`."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import redalg

if find_spec("redalg.kernels") is None:  # a bare checkout: the folders lie beside the package, not in it
    redalg.__path__.append(str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("MPLBACKEND", "Agg")  # pictures in doctests open no window

settings.register_profile(
    "default", deadline=None, print_blob=True, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Modules that compile, assemble, emulate or search for long: the deep suite (`make test-deep`). `make test` runs the
# rest, and of the modules in SAMPLED the tests of a dozen catalog specs that have every kind of slot and policy.
DEEP = frozenset(
    """
    test_accuracy test_anchors test_anchors_softmax test_assembly_sample test_audit test_audit_calls test_catalog
    test_certificates test_cpu_cache test_cpu_columns test_cpu_math test_cpu_past test_cpu_splits test_deep_cascades
    test_engine_specs test_equivalence_catalog test_generated_calls test_generated_verdicts test_gpu_math test_hostile
    test_hostile_verdicts test_infinities test_intrinsics test_kept_rows test_kernel_ahead test_kernel_check
    test_kernel_choices test_kernel_columns test_kernel_sampling test_kernels_cpu test_mixed_dtypes test_mma_assembly
    test_named_alike test_names_in_source test_notebooks test_obligation test_out test_pictures_diagrams test_printed
    test_proof_falsify test_proof_refusal test_properties test_properties_catalog test_rocq test_rocq_instances
    test_simulate test_smt test_tensor_assembly test_tensor_class test_tensor_gemm test_tensor_gemm_calls
    test_tensor_gemm_launches test_tensor_gemm_simulated test_tensor_kernels test_tensor_logits test_tensor_mma
    test_tensor_mma_kernels test_tensor_mma_logits test_tensor_mma_types test_tensor_mma_types_kernels test_tensor_wide
    test_testing_public test_traffic test_units test_witness test_witness_random test_ends test_products
    test_sums_over_groups test_cancelling_stages test_tensor_bounds test_cpu_formats
    """.split()
)
SAMPLED = frozenset({"test_catalog", "test_certificates", "test_equivalence_catalog", "test_printed"})
SAMPLE = frozenset(
    """
    softmax attention variance weighted_variance covariance layer_norm_gemm moe_softmax_topk argmax geometric_mean
    two_norm_safe cross_entropy kurtosis
    """.split()
)


def is_deep(item: pytest.Item) -> bool:
    module = item.path.stem
    name = getattr(item, "callspec", None) and item.callspec.params.get("name")  # type: ignore[attr-defined]
    return module in DEEP and not (module in SAMPLED and name in SAMPLE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_deep(item):
            item.add_marker(pytest.mark.deep)
        if item.get_closest_marker("gpu") and shutil.which("nvidia-smi") is None:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))


@pytest.fixture(scope="session")
def theories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The theories of `proofs/theories`, compiled in a place of their own; only for tests that need coqc."""
    from tests.rocq_tools import FILES, compile_theories

    return compile_theories(tmp_path_factory.mktemp("theories"), FILES)
