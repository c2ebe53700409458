"""The theorems of proofs/theories: compiled by coqc, resting on the allowed axioms only, and refusing what is false.

Every test that needs coqc is skipped with a message where there is none.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.rocq_tools import ALLOWED, FILES, ROOT, THEORIES, axioms, check, needs_coqc

MAIN = {
    "every_bracketing",
    "every_partition",
    "every_order_result",
    "semigroup_permutation",
    "combine_associative",
    "separated_permutation",
    "transport_value",
    "transport_associative",
    "additive_value",
    "multiplicative_value",
    "average_value",
    "masked_moving",
    "rmax_monotone",
    "rmax_square",
    "argmax_bracketing",
    "argmax_strict",
    "topk_bracketing",
    "every_relation",
    "lean_run",
    "chan_run",
    "residual_moment",
    "SoftmaxDenominator.online",
    "Attention.attention",
    "LogSumExp.logsumexp",
    "Entropy.entropy",
    "Variance.finalize_var",
    "ThirdMoment.third_moment",
    "Covariance.covariance",
    "LayerNormGemm.layer_norm_gemm",
    "Argmax.argmax",
    "Splade.splade",
    "AbsmaxScaling.absmax_scaling",
}
HEADER = "From Coq Require Import Reals List.\nFrom Redalg Require Import {}.\nOpen Scope R_scope.\n".format(
    " ".join(Path(name).stem for name in FILES)
)


@pytest.fixture
def compiled(theories: Path) -> Path:
    return theories


def _check(text: str, place: Path, name: str) -> subprocess.CompletedProcess[str]:
    return check(HEADER + text, place, name)


def theorems(text: str) -> list[str]:
    """Names of the theorems and lemmas of a file, with the modules they stand in."""
    found, modules = [], []
    for line in re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL).splitlines():
        if opened := re.match(r"\s*Module (\w+)\.", line):
            modules.append(opened[1])
        elif (closed := re.match(r"\s*End (\w+)\.", line)) and modules and closed[1] == modules[-1]:
            modules.pop()
        elif stated := re.match(r"\s*(?:Theorem|Lemma) ([\w']+)", line):
            found.append(".".join((*modules, stated[1])))
    return found


def test_every_theory_is_listed_once() -> None:
    assert sorted(FILES) == sorted(path.name for path in THEORIES.glob("*.v"))
    assert len(set(FILES)) == len(FILES)


def test_theories_ship_with_the_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "redalg.proofs"
    ]
    for name in (*FILES, "_CoqProject"):
        assert any(fnmatch(f"theories/{name}", pattern) for pattern in patterns), name


@pytest.mark.parametrize("name", FILES)
def test_a_theory_says_what_it_is_and_proves_what_it_states(name: str) -> None:
    text = (THEORIES / name).read_text()
    assert text.startswith("(** * ")
    assert len(text.splitlines()) <= 400
    assert not re.findall(r"\b(?:Admitted|admit|Axiom|Axioms|Parameter|Parameters|Conjecture|Abort)\b", text)


def test_the_main_theorems_are_there() -> None:
    stated = {name for file in FILES for name in theorems((THEORIES / file).read_text())}
    assert not MAIN - stated


def _assumptions(files: list[str]) -> str:
    """A tuple of every theorem, so that what they share is walked through once."""
    names = [f"@Redalg.{Path(file).stem}.{name}" for file in files for name in theorems((THEORIES / file).read_text())]
    assert len(names) > 5
    return f"Definition everything := ({', '.join(names)}).\nPrint Assumptions everything.\n"


@needs_coqc
def test_theorems_rest_on_the_allowed_axioms_only(compiled: Path) -> None:
    done = _check(_assumptions(FILES), compiled, "Assumptions")
    assert done.returncode == 0, done.stderr
    assert {"FunctionalExtensionality.functional_extensionality_dep"} <= axioms(done.stdout) <= ALLOWED


@needs_coqc
def test_the_theory_of_folds_needs_no_axiom(compiled: Path) -> None:
    done = _check(_assumptions(["Fold.v"]), compiled, "FoldAssumptions")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Closed under the global context"


@needs_coqc
def test_an_axiom_in_an_instance_is_seen(compiled: Path) -> None:
    text = "Lemma O1 : forall x : R, exp x = x.\nProof. Admitted.\nPrint Assumptions O1.\n"
    done = _check(text, compiled, "Smuggled")
    assert done.returncode == 0
    assert axioms(done.stdout) - ALLOWED == {"O1"}


TRUE = {
    "exponential": "forall x A B : R, exp (x - B) = exp (A - B) * exp (x - A)",
    "rational": "forall a b n m : R, 0 < n -> 0 < m -> a + (b - a) * (m / (n + m)) = (n * a + m * b) / (n + m)",
    "order": "forall a b c : R, 0 <= c -> c * Rmax a b = Rmax (c * a) (c * b)",
    "logarithm": "forall p l : R, 0 < p -> 0 < l -> p / l * ln (p / l) = p * ln p / l - p * ln l / l",
    "root": "forall x y : R, 0 <= x -> 0 < y -> sqrt (x / y) = sqrt x * sqrt y / y",
    "condition": "forall x M N : R, x <= M -> M <= N ->"
    " (if Reqb x N then 1 else 0) = (if Reqb M N then 1 else 0) * (if Reqb x M then 1 else 0)",
    "contraction": "forall (q k : nat -> R) (m : R) ds,"
    " m * lsum (fun d => q d * k d) ds = lsum (fun d => q d * (m * k d)) ds",
    "rotation": "forall x A B : R, sin (x - B) = cos (B - A) * sin (x - A) - sin (B - A) * cos (x - A)",
}
# Each one the true statement of that name with a sign, a factor or a hypothesis changed.
FALSE = {
    "exponential": "forall x A B : R, exp (x - B) = exp (B - A) * exp (x - A)",
    "rational": "forall a b n m : R, 0 < n -> 0 < m -> a + (b - a) * (n / (n + m)) = (n * a + m * b) / (n + m)",
    "order": "forall a b c : R, c * Rmax a b = Rmax (c * a) (c * b)",
    "logarithm": "forall p l : R, 0 < p -> p / l * ln (p / l) = p * ln p / l - p * ln l / l",
    "root": "forall x y : R, 0 <= x -> 0 < y -> sqrt (x / y) = sqrt x / y",
    "condition": "forall x M N : R, M <= N ->"
    " (if Reqb x N then 1 else 0) = (if Reqb M N then 1 else 0) * (if Reqb x M then 1 else 0)",
    "contraction": "forall (q k : nat -> R) (m : R) ds,"
    " m * lsum (fun d => q d * k d) ds = lsum (fun d => q d * (m + k d)) ds",
    "rotation": "forall x A B : R, sin (x - B) = cos (B - A) * sin (x - A) + sin (B - A) * cos (x - A)",
}


def _instance(statement: str) -> str:
    return f"Lemma O2_slot : {statement}.\nProof. redalg_solve. Qed.\n"


@needs_coqc
def test_true_instances_compile(compiled: Path) -> None:
    text = "".join(f"Module M_{name}. {_instance(statement)} End M_{name}.\n" for name, statement in TRUE.items())
    done = _check(text, compiled, "Instances")
    assert done.returncode == 0, done.stderr


@needs_coqc
@pytest.mark.parametrize("name", sorted(FALSE))
def test_a_false_instance_fails(name: str, compiled: Path) -> None:
    done = _check(_instance(FALSE[name]), compiled, f"Wrong_{name}")
    assert done.returncode == 1
    assert "No applicable tactic" in done.stderr
    assert not (compiled / f"Wrong_{name}.vo").exists()


@needs_coqc
@pytest.mark.parametrize(
    ("relation", "holds"), [("u <= v -> relu u <= relu v", True), ("u < v -> relu u < relu v", False)]
)
def test_relu_is_monotone_but_not_strictly(relation: str, holds: bool, compiled: Path) -> None:
    text = f"Lemma O1_monotone : forall u v : R, {relation}.\nProof. redalg_mono. Qed.\n"
    assert (_check(text, compiled, f"Relu_{holds}").returncode == 0) is holds
