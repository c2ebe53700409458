"""`redalg.pictures`, the charts: heights, points and values are those of the code that computes them."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from math import prod
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


# --- roofline --------------------------------------------------------------------------------------------------------


def points(ax: plt.Axes) -> dict[str, tuple[float, float]]:
    found = [line for line in ax.lines if line.get_marker() != "None"]
    return {str(p.get_label()): (float(p.get_xdata()[0]), float(p.get_ydata()[0])) for p in found}


def form_of(name: str) -> ra.Form:
    entry = ra.catalog.entry(name)
    return ra.derive_incremental(entry.spec, entry.axis, assume=entry.assume)


@pytest.mark.parametrize("name", ["softmax", "variance", "attention"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_points_are_the_models_time_and_the_counted_bytes(name: str, dtype: str) -> None:
    from redalg.kernels.ir.layouts import View, walk_of
    from redalg.kernels.programs import lower
    from redalg.kernels.schedule.choose import choose
    from redalg.kernels.schedule.target import H200

    form = form_of(name)
    sizes = dict.fromkeys(form.spec.axes, 64) | {"j": 4096}
    found = points(pictures.roofline(form, sizes, H200, {"mine": 1e-3}, dtype))
    moved = ra.traffic(form.spec, sizes, dtype, form)
    assert set(found) == {"op by op, at best", "stage by stage, at best", "predicted", "mine"}
    one = found["op by op, at best"][0] * moved.op_by_op.bytes
    assert found["stage by stage, at best"][0] * moved.stage_by_stage.bytes == pytest.approx(one)
    program = lower(form, {t.name: dtype if t.axes else float for t in form.spec.tensors})
    arrays = [*(o for o in program.operands if not o.number), *program.results]
    views = {getattr(a, "key", a.name): View.contiguous(tuple(sizes[x] for x in a.axes)) for a in arrays}
    choice = choose(program, sizes, walk_of(program, views), H200)
    least = sum(prod(v.shape) for v in views.values()) * {"float32": 4, "float64": 8}[dtype]
    assert found["predicted"] == pytest.approx((one / least, one / choice.seconds))
    assert found["mine"] == pytest.approx((one / least, one / 1e-3))


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "argmax"])
def test_no_point_stands_above_its_roof(name: str) -> None:
    from redalg.kernels.schedule.target import TABLE

    form = form_of(name)
    for device in TABLE:
        ax = pictures.roofline(form, {"i": 2048, "j": 8192}, device)
        roofs = {str(line.get_label()).split(":")[0]: line for line in ax.lines if line.get_marker() == "None"}
        x, y = roofs["copy"].get_data()
        assert y[0] / x[0] == pytest.approx(device.reachable) and y[1] == pytest.approx(device.issue)
        assert y[1] / x[1] == pytest.approx(device.reachable)
        for intensity, rate in points(ax).values():
            assert rate <= 1.0001 * min(device.issue, intensity * device.reachable)


def test_more_work_in_the_spec_stands_further_to_the_right() -> None:
    x = ra.tensors("x[i,j]")
    light, heavy = ra.Spec(y=ra.sum(x, "j")), ra.Spec(y=ra.sum(ra.tanh(ra.erf(ra.exp(x))), "j"))
    at = [
        points(pictures.roofline(ra.derive_incremental(s), {"i": 99, "j": 999}, "A100"))["predicted"][0]
        for s in (light, heavy)
    ]
    assert at[0] < at[1]


def test_a_gpu_that_is_not_there_is_the_tables_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import redalg.kernels.launch.driver as driver
    from redalg.kernels.schedule.target import TABLE

    monkeypatch.setattr(driver, "available", lambda: False)
    ax = pictures.roofline(form_of("softmax"), {"i": 8, "j": 8})
    assert f"on {TABLE[0].name}" in ax.get_title()


@pytest.mark.parametrize(
    "more", [{"target": "H9000"}, {"measured": 0.0}, {"measured": {"a": float("nan")}}, {"dtype": "float99"}]
)
def test_rooflines_that_make_no_sense_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RedalgError) as error:
        pictures.roofline(form_of("softmax"), {"i": 8, "j": 8}, **{"target": "H100", **more})
    assert complete(error.value)
    with pytest.raises(RedalgError) as error:
        pictures.roofline(form_of("softmax"), {"i": 8}, "H100")
    assert complete(error.value)
