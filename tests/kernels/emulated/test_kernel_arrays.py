"""Arrays as kernels see them: metadata, and what is refused. Stand-ins take the place of arrays on a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda.admit import admitted
from redalg.kernels.cuda.run import CudaRun, Ready
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch.arrays import CUPY, JAX, NUMBA, NUMPY, TORCH, alignment, dtype_name, framework_of, plain
from redalg.kernels.programs import lower
from redalg.numeric.array_origin import BFLOAT16_BITS, stand_in
from redalg.numeric.binding import bind
from tests.support.forms import Forms
from tests.support.gpu_standins import BASE, Capsule, Cupy, Face, Jax, Place, Tensor, launches_of_nothing, tensor

X, W = ra.tensors("x[i,j] w[j]")
FORMS = Forms({"two": ra.Spec(s=ra.sum(X * W, "j"), m=ra.max(X, "j")), "single": ra.Spec(s=ra.sum(X, "j"))})


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return launches_of_nothing(monkeypatch)


def refused(call: Any, *words: str) -> RedalgError:
    """The error of a call, with its four parts, and these words in the one that names them."""
    with pytest.raises(RedalgError) as caught:
        call()
    error = caught.value
    assert all((error.what, error.where, error.why, error.fix))
    for word in words:
        assert word in str(error)
    return error


# --- kinds -----------------------------------------------------------------------------------------------------------


def test_every_library_is_known_by_its_arrays() -> None:
    for array in (np.ones(3), np.float32(1), np.float64(1), [1.0], (1, 2)):
        assert framework_of(array) is NUMPY
    for number in (1, 2.5, True):
        assert framework_of(number) is None
    assert framework_of(Tensor((3,))) is TORCH and framework_of(Cupy((3,))) is CUPY
    assert framework_of(Jax((3,))) is JAX and framework_of(Face((3,))) is NUMBA


@pytest.mark.parametrize("array", [1j, "text", {1, 2}, None, object(), Capsule(np.ones(3), device=2)])
def test_what_no_kernel_can_read_is_refused(array: Any) -> None:
    refused(lambda: framework_of(array), type(array).__name__, "__cuda_array_interface__")


def test_dtypes_have_the_names_of_storage() -> None:
    for name in STORAGE:
        cell = np.dtype(getattr(ml_dtypes, name, None) or name)
        assert dtype_name(np.zeros(2, cell)) == name
        assert dtype_name(Tensor((2,), name)) == name
    assert dtype_name(np.zeros(2, BFLOAT16_BITS)) == "bfloat16"
    assert dtype_name(np.zeros(2, ">f4")) == "float32" and dtype_name(np.zeros(2, "V2")) == "void16"


@pytest.mark.parametrize("dtype", ["float8_e4m3fnuz", "qint8", "complex64", "float128", "object", "None"])
def test_an_unsupported_dtype_is_refused_by_name(dtype: str) -> None:
    given = np.dtype(dtype) if dtype in ("complex64", "object") else dtype
    refused(
        lambda: lower(FORMS["single"], {"x": given}), "x of", dtype.partition("6")[0] if "complex" in dtype else dtype
    )


# --- addresses and strides -------------------------------------------------------------------------------------------


def test_alignment_is_the_largest_power_of_two_up_to_16() -> None:
    for pointer in range(BASE, BASE + 64):
        wanted = next(p for p in (16, 8, 4, 2, 1) if pointer % p == 0)
        assert alignment(pointer) == wanted
    assert alignment(0) == 16


@pytest.mark.parametrize("make", [Face, Cupy])
def test_the_interface_gives_address_and_strides_in_elements(make: Any) -> None:
    f = framework_of(make((3, 4)))
    assert f.pointer(make((3, 4), at=BASE + 8)) == BASE + 8
    assert f.strides(make((3, 4, 5))) == (20, 5, 1) and f.strides(make(())) == ()
    assert f.strides(make((3, 4), "<f8", (8, 24))) == (1, 3)
    assert f.strides(make((3, 4), "<f4", (0, -4))) == (0, -1)
    refused(lambda: f.strides(make((3, 4), "<f8", (48, 12))), "(48, 12)", "whole elements of 8")


def test_calls_of_one_kind_share_a_key_and_others_do_not() -> None:
    def faces(**more: Any) -> Any:
        return NUMBA.key(Face(more.pop("shape", (3, 4)), more.pop("typestr", "<f4"), **more))

    assert faces() == faces(at=BASE + 32) and hash(faces())
    others = [faces(shape=(4, 3)), faces(strides=(4, 12)), faces(typestr="<i4"), faces(at=BASE + 4)]
    assert len({faces(), *others}) == 5
    tensors = [tensor(), tensor(dtype="float16"), tensor(steps=(1, 3)), tensor(at=BASE + 4), tensor(requires_grad=True)]
    tensors += [tensor(device=("cuda", 1))]
    assert len({TORCH.key(t) for t in tensors}) == 6 and TORCH.key(tensor(at=BASE + 16)) != TORCH.key(
        tensor(at=BASE + 8)
    )
    assert NUMPY.key(np.ones((3, 4))) == NUMPY.key(np.zeros((3, 4))) != NUMPY.key(np.ones((3, 4), ">f8"))


def test_tensors_without_strides_are_left_to_the_checks_of_a_first_call() -> None:
    class Sparse(Tensor):
        def stride(self) -> Any:
            raise RuntimeError("sparse tensors do not have strides")

    with pytest.raises(TypeError, match="do not have strides"):
        TORCH.key(Sparse((3, 4)))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12.0).reshape(3, 4)[::-1, ::2],
        np.broadcast_to(np.arange(4.0), (3, 4)),
        np.array(3.0),
        np.ones((0, 4)),
        np.ones((3, 4), ml_dtypes.bfloat16),
    ],
)
def test_a_plain_array_is_read_where_it_is(array: np.ndarray) -> None:
    assert plain(array) is array


def records() -> np.ndarray:
    made = np.zeros((3, 4), [("x", "f8"), ("tag", "i4")])
    made["x"] = np.arange(12.0).reshape(3, 4)
    return made


@pytest.mark.parametrize("foreign", ["record", ">f4", ">f8", ">i4"])
def test_a_foreign_byte_order_and_fields_of_records_are_copied(foreign: str) -> None:
    array = records()["x"] if foreign == "record" else np.arange(12).reshape(3, 4).astype(foreign)
    found = plain(array)
    assert found is not array and found.dtype.isnative and found.dtype.itemsize == array.dtype.itemsize
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(FORMS["single"].compile("cpu")(x=array), np.asarray(array, float).sum(1))


def test_results_are_written_to_fields_of_records_and_to_nothing_beside_them() -> None:
    out = np.full(3, 7, [("s", "f8"), ("tag", "i4")])
    FORMS["single"].compile("cpu")(x=records()["x"], out=out["s"])
    np.testing.assert_array_equal(out["s"], records()["x"].sum(1))
    np.testing.assert_array_equal(out["tag"], 7)


def test_read_only_strided_and_broadcast_views_are_read() -> None:
    x = np.arange(60.0).reshape(6, 10)
    x.flags.writeable = False
    views = [x, x[::2, ::3], x.T[:, ::-1], np.broadcast_to(x[0], (4, 10)), x[3:3], np.asfortranarray(x)]
    for view in views:
        np.testing.assert_array_equal(FORMS["single"].compile("cpu")(x=view), view.sum(1))
        np.testing.assert_array_equal(x, np.arange(60.0).reshape(6, 10))
    run, out = FORMS["single"].compile("cpu"), np.zeros(6)
    out.flags.writeable = False
    refused(lambda: run(x=x, out=out), "read-only")


def test_an_array_that_has_only_dlpack_is_read_on_the_cpu() -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(FORMS["single"].compile("cpu")(x=Capsule(x.T)), x.T.sum(1))
    refused(lambda: FORMS["single"].compile("cpu")(x=Capsule(x, device=2)), "device")
    refused(lambda: FORMS["single"].compile("cpu")(x=Face((3, 4))), "cuda")


# --- admission to a call on a GPU ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "float32"])
def test_what_is_admitted_takes_no_memory(dtype: str) -> None:
    """Four terabytes, which nobody converts to see that they fit the spec."""
    held = stand_in(SimpleNamespace(shape=(1 << 20, 1 << 20), dtype=dtype))
    bound = bind(ra.catalog["softmax"], {"x": held})
    assert bound.sizes == {"i": 1 << 20, "j": 1 << 20} and held.strides == (0, 0)


def test_arrays_of_every_kind_are_admitted_with_their_dtypes(one_gpu: list[Any]) -> None:
    for make, kind in ((Tensor, TORCH), (Cupy, CUPY), (Face, NUMBA), (Jax, JAX)):
        assert admitted(FORMS["two"].spec, {"x": make((3, 4)), "w": make((4,))}) == (
            kind,
            {"x": "float32", "w": "float32"},
        )
    bits = {"x": np.ones((3, 4), BFLOAT16_BITS), "w": np.ones(4, np.int8)}
    assert admitted(FORMS["two"].spec, bits) == (NUMPY, {"x": "bfloat16", "w": "int8"})


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"x": Tensor((3, 4)), "w": Cupy((4,))}, ["mixed kinds", "w is cupy, x is torch"]),
    ({"x": Tensor((3, 4)), "w": np.ones(4, np.float32)}, ["mixed kinds", "w is numpy"]),
    ({"x": tensor(device=Place("cuda", 1)), "w": Tensor((4,))}, ["mixed devices", "device 0"]),
    ({"x": tensor(device=Place("cpu", None)), "w": Tensor((4,))}, ["torch arrays on", ".cuda()"]),
    ({"x": Jax((3, 4), "cpu"), "w": Jax((4,), "cpu")}, ["jax arrays on cpu", "device_put"]),
    ({"x": Jax((3, 4), number=1), "w": Jax((4,))}, ["mixed devices", "x on device 1"]),
    ({"x": tensor(requires_grad=True), "w": Tensor((4,))}, ["requires a gradient", "x.detach()"]),
    ({"x": tensor(layout="torch.sparse_coo"), "w": Tensor((4,))}, ["layout torch.sparse_coo", "to_dense"]),
    ({"x": Tensor((3, 4)), "w": Tensor((5,))}, ["w[j] of shape (5,)", "length 5"]),
    ({"x": Tensor((3, 4, 1)), "w": Tensor((4,))}, ["x"]),
    ({"x": Tensor((3, 4))}, ["without w[j]"]),
    ({"x": Tensor((3, 4)), "w": Tensor((4,)), "v": Tensor((4,))}, ["named 'v'"]),
    ({"x": Face((3, 4), mask=Face((3, 4))), "w": Face((4,))}, ["mask"]),
    ({"x": Face((3, 4), ">f4"), "w": Face((4,))}, ["another order (>f4)"]),
    ({"x": SimpleNamespace(__cuda_array_interface__=Face((3, 4)).__cuda_array_interface__), "w": 1}, ["neither shape"]),
    ({"x": "text", "w": Tensor((4,))}, ["an array of type str"]),
]


@pytest.mark.parametrize("given, words", REFUSED, ids=[words[0] for _, words in REFUSED])
def test_what_does_not_go_together_is_refused(one_gpu: list[Any], given: dict[str, Any], words: list[str]) -> None:
    refused(lambda: admitted(FORMS["two"].spec, given), *words)
    refused(lambda: CudaRun(FORMS["two"])(**given), *words)
    assert not one_gpu


# --- what is launched ------------------------------------------------------------------------------------------------


def test_a_launch_gets_the_addresses_and_strides_of_the_arrays(one_gpu: list[Any]) -> None:
    run = CudaRun(FORMS["single"])
    made = run(x=tensor(steps=(1, 3), at=BASE + 12))
    fixed, by_role, _, stream = one_gpu.pop()
    assert (fixed["stride", "x", 0], fixed["stride", "x", 1], fixed["size", "j", 0]) == (1, 3, 4) and stream == 77
    assert by_role["operand"] == BASE + 12 and by_role["result"] == made.data_ptr() and made.shape == (3,)
    run(x=tensor(steps=(1, 3), at=BASE + 44), stream=5)
    assert one_gpu[0][1]["operand"] == BASE + 44 and one_gpu[0][3] == 5 and len(run._ready) == 1
    run(x=tensor())
    assert len(run._ready) == 2


def test_a_call_prints_its_draft_after_a_pass(one_gpu: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    run = CudaRun(FORMS["single"], dump_after="walk")
    run(x=tensor())
    assert capsys.readouterr().out.startswith("Placed(name='x'")
    run(x=tensor())
    assert not capsys.readouterr().out and len(one_gpu) == 2


def test_a_view_that_negates_is_resolved_first(one_gpu: list[Any]) -> None:
    CudaRun(FORMS["single"])(x=tensor(negated=True))
    assert one_gpu[0][1]["operand"] == BASE + 4096


OUTS: list[tuple[Any, list[str]]] = [
    (Tensor((4,)), ["shape (4,)", "shape (3,)"]),
    (Tensor((3,), "float64"), ["float64", "dtype float32"]),
    (Tensor((3,), strides=(2,)), ["strides (2,)", "contiguous"]),
    (np.zeros(3, np.float32), ["of type ndarray", "torch"]),
    ([0.0] * 3, ["of type list"]),
    ({"t": Tensor((3,))}, ["the outputs are s"]),
]


@pytest.mark.parametrize("out, words", OUTS, ids=[words[0] for _, words in OUTS])
def test_an_out_that_does_not_fit_is_refused(one_gpu: list[Any], out: Any, words: list[str]) -> None:
    refused(lambda: CudaRun(FORMS["single"])(x=Tensor((3, 4)), out=out), *words)
    assert not one_gpu


@pytest.mark.parametrize(
    "field, value, word",
    [
        ("requires_grad", True, "gradient"),
        ("negated", True, "negates"),
        ("device", Place("cpu", None), "torch arrays on"),
        ("device", Place("cuda", 1), "on device 1, the arrays of the call on device 0"),
    ],
)
def test_an_out_that_may_not_be_written_to_is_refused(one_gpu: list[Any], field: str, value: Any, word: str) -> None:
    out = Tensor((3,))
    setattr(out, field, value)
    refused(lambda: CudaRun(FORMS["single"])(x=Tensor((3, 4)), out=out), word)
    assert not one_gpu
    good = Tensor((3,), at=BASE + 256)
    assert CudaRun(FORMS["single"])(x=Tensor((3, 4)), out=good) is good and one_gpu[0][1]["result"] == BASE + 256


def test_read_only_and_unchanging_arrays_take_no_results() -> None:
    assert CUPY.fixed(Cupy((3,), readonly=True)) and NUMBA.fixed(Face((3,), readonly=True)) and JAX.fixed(Jax((3,)))
    assert not CUPY.fixed(Cupy((3,))) and not NUMBA.fixed(Face((3,))) and not NUMPY.fixed(np.zeros(3))
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    assert NUMPY.fixed(fixed)


def test_results_of_an_empty_stream_are_written_to_out(one_gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ready, "_of_zero_length", lambda self, given: ["nothing"])
    out = Tensor((3,))
    assert CudaRun(FORMS["single"])(x=Tensor((3, 0)), out=out) is out and out.written == "nothing" and not one_gpu
    refused(lambda: CudaRun(FORMS["single"])(x=Tensor((3, 0)), out=Tensor((5,))), "shape (5,)")


def test_results_go_to_the_outs_of_their_names_in_whatever_order(one_gpu: list[Any]) -> None:
    ready = Ready.__new__(Ready)
    ready.outputs = [("s", (3,), "float64"), ("m", (3,), "float64")]
    made = [np.arange(3.0), np.arange(3.0) + 10]
    out = {"m": np.zeros(3), "s": np.zeros(3)}
    ready._home(made, out)
    np.testing.assert_array_equal(out["s"], made[0])
    np.testing.assert_array_equal(out["m"], made[1])


@pytest.mark.parametrize(
    "array", [np.array(2.5), np.ones((2, 3))[:, ::2], np.arange(3.0).astype(">f8"), records()["x"]]
)
def test_numpy_arrays_travel_as_they_are_shaped(monkeypatch: pytest.MonkeyPatch, array: np.ndarray) -> None:
    monkeypatch.setattr(pytest.importorskip("numba.cuda"), "to_device", lambda a: a)
    sent = NUMPY.enter(array)
    assert sent.shape == array.shape and sent.array.flags.c_contiguous and sent.array.dtype.isnative
    np.testing.assert_array_equal(sent.array, array)


# --- PyTorch, where it is installed ----------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_tensors_of_pytorch_have_the_metadata_that_is_read(torch: Any) -> None:
    x = torch.arange(60, dtype=torch.float32).reshape(6, 10)
    for view in (x, x.t(), x[1:, ::3], x[:1].expand(5, 10), x[0, 0]):
        assert framework_of(view) is TORCH and TORCH.strides(view) == tuple(view.stride())
        assert TORCH.pointer(view) == view.data_ptr() and TORCH.enter(view) is view and not TORCH.fixed(view)
    for name in sorted(STORAGE.keys() - {"uint16", "uint32", "uint64"}):
        assert dtype_name(torch.zeros(2, dtype=getattr(torch, name))) == name
    assert TORCH.key(x) == TORCH.key(x.clone()) != TORCH.key(x.double()) and TORCH.key(x) != TORCH.key(x.t())
    assert TORCH.fixed(torch.zeros(3, requires_grad=True))


def test_a_view_of_pytorch_that_negates_is_not_taken_for_what_it_negates(torch: Any) -> None:
    view = torch.complex(torch.ones(3), torch.ones(3)).conj().imag
    assert view.is_neg() and TORCH.fixed(view)
    assert TORCH.enter(view).data_ptr() != view.data_ptr() and TORCH.enter(view).tolist() == [-1.0] * 3
    assert FORMS["single"].compile("cpu")(x=view.reshape(1, 3)).tolist() == [-3.0]


def test_tensors_of_pytorch_on_the_cpu(torch: Any) -> None:
    run, x = FORMS["single"].compile("cpu"), torch.arange(60, dtype=torch.float64).reshape(6, 10)
    for view in (x, x.t(), x[1:, ::3], x[:1].expand(5, 10)):
        found = run(x=view)
        assert isinstance(found, torch.Tensor) and torch.equal(found, view.sum(1))
    out = torch.zeros(6, dtype=torch.float64)
    assert run(x=x, out=out) is out and torch.equal(out, x.sum(1))
    assert run(x=x.to(torch.bfloat16)).dtype is torch.bfloat16
    refused(lambda: run(x=x.clone().requires_grad_()), "requires a gradient", "x.detach()")
    refused(lambda: run(x=x.to_sparse()), "x[i,j]")
    refused(lambda: run(x=x.to(torch.complex64)), "complex64")
    refused(lambda: FORMS["two"].compile("cpu")(x=x, w=np.ones(10)), "mixed kinds")
    refused(lambda: run(x=x, out=np.zeros(6)), "out for s of type ndarray")


def test_tensors_of_pytorch_that_no_gpu_can_read_are_refused_there(torch: Any) -> None:
    x = torch.ones(3, 4)
    refused(lambda: admitted(FORMS["single"].spec, {"x": x}), "torch arrays on cpu", "array.cuda()")
    refused(lambda: admitted(FORMS["single"].spec, {"x": x.to_sparse()}), "layout torch.sparse_coo", "to_dense")
    with pytest.raises(TypeError):  # it has neither strides nor an address
        TORCH.key(x.to_sparse())


def test_calls_of_derivatives_read_arrays_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a target: on the device of the arguments, whose lengths are checked as on the host."""
    launched = launches_of_nothing(monkeypatch)
    spec = ra.parse("u = mean[j](x[i,j]); return y = (x[i,j] - u)*w[j]")
    x, w = Tensor((3, 5), at=BASE), Tensor((5,), at=BASE + 4096)
    found = spec.vjp()(x=x, w=w, cotangents={"y": Tensor((3, 5), at=BASE + 8192)})
    found |= spec.jvp()(x=x, w=w, tangents={"x": Tensor((3, 5), at=BASE + 8192), "w": Tensor((5,), at=BASE + 16384)})
    assert {n: a.shape for n, a in found.items()} == {"x": (3, 5), "w": (5,), "y": (3, 5)} and len(launched) > 2
    with pytest.raises(RedalgError, match="axis j has length"):
        spec.vjp()(x=x, w=Tensor((4,)), cotangents={"y": x})
