"""`redalg.pictures`, the charts: heights, points and values are those of the code that computes them."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from redalg import pictures  # noqa: E402
from redalg.pictures import style  # noqa: E402


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def complete(error: RedalgError) -> bool:
    return bool(error.what and error.where and error.why and error.fix)


# --- the module ------------------------------------------------------------------------------------------------------


def test_the_pictures_are_public_and_lazy() -> None:
    assert ra.pictures is pictures and set(pictures.__all__) <= set(dir(pictures))
    for name in pictures.__all__:
        assert callable(getattr(pictures, name))
    with pytest.raises(AttributeError):
        pictures.nothing_of_this_name  # noqa: B018


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RedalgError) as error:
        pictures.bytes_moved(ra.catalog["softmax"], {"i": 2, "j": 3})
    assert complete(error.value) and "redalg[notebook]" in error.value.fix and "matplotlib" in error.value.why


def test_axes_that_are_none_are_refused() -> None:
    with pytest.raises(RedalgError) as error:
        pictures.bytes_moved(ra.catalog["softmax"], {"i": 2, "j": 3}, ax=plt.figure())  # type: ignore[arg-type]
    assert complete(error.value)


def test_the_colours_are_told_apart_without_colour() -> None:
    """Neighbours in the palette differ in lightness, or in their dash: no two share both colour and dash."""
    assert len(set(style.PALETTE)) == len(style.PALETTE)
    pairs = {(style.PALETTE[k % len(style.PALETTE)], str(style.DASHES[k % len(style.DASHES)])) for k in range(42)}
    assert len(pairs) == 42
    assert len(set(map(str, style.DASHES))) == len(style.DASHES) and len(set(style.HATCHES)) == len(style.HATCHES)


# --- bytes_moved -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "attention", "variance", "layer_norm_gemm"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bars_are_what_traffic_counts(name: str, dtype: str) -> None:
    spec = ra.catalog[name]
    sizes = {a: 7 + 3 * k for k, a in enumerate(spec.axes)}
    found = ra.traffic(spec, sizes, dtype, bandwidth=1e9)
    ways = [found.op_by_op, found.stage_by_stage, found.fused]
    ax = pictures.bytes_moved(spec, sizes, dtype, bandwidth=1e9)
    read, written = ax.containers
    assert (read.get_label(), written.get_label()) == ("read", "written")
    assert [bar.get_height() for bar in read] == [m.read for m in ways]
    assert [bar.get_height() for bar in written] == [m.written for m in ways]
    assert [bar.get_y() for bar in written] == [m.read for m in ways]
    for m, text in zip(ways, ax.texts, strict=True):
        assert style.of_bytes(m.bytes) in text.get_text() and f"{m.passes} pass" in text.get_text()
        assert style.of_seconds(m.seconds) in text.get_text()
    assert written[0].get_hatch()


def test_a_spec_that_moves_more_has_higher_bars() -> None:
    x, b = ra.tensors("x[i,j] b[i,j]")
    heights = [
        sum(bar.get_height() for c in pictures.bytes_moved(spec, {"i": 4, "j": 8}).containers for bar in c)
        for spec in (ra.Spec(y=ra.exp(x)), ra.Spec(y=ra.exp(x + b)))
    ]
    assert heights[0] < heights[1]


def test_what_traffic_refuses_is_refused() -> None:
    with pytest.raises(RedalgError) as error:
        pictures.bytes_moved(ra.catalog["softmax"], {"i": 2})
    assert complete(error.value)
