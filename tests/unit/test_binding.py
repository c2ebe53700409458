"""What a call accepts, what it refuses (always with four parts), and the dtypes of its results."""

import sys
import types
from fractions import Fraction

import numpy as np
import pytest

import redalg as ra
from redalg.graph.node import Decl
from redalg.numeric.array_origin import BFLOAT16_BITS, Origin, origin_of
from redalg.numeric.binding import Bound, bind, bind_arrays, result_dtypes
from redalg.streaming.results import real_dtype

X, W = ra.tensors("x[i,j] w[j]")
PRODUCT = ra.Spec(y=X * W)
GOOD = {"x": np.ones((2, 3)), "w": np.ones(3)}


def refused(arrays: dict, spec: ra.Spec = PRODUCT) -> ra.RedalgError:
    with pytest.raises(ra.RedalgError) as caught:
        bind(spec, arrays, where="here")
    error = caught.value
    assert error.what and error.where == "here" and error.why and error.fix
    return error


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": None}, "without w[j]"),
        ({"z": np.ones(3)}, "named 'z'"),
        ({"x": np.ones(3)}, "1 dimensions"),
        ({"w": np.ones(1)}, "length 1 here and 3 in x[i,j]"),
        ({"w": np.ones(4)}, "length 4 here and 3"),
        ({"w": 2.0}, "0 dimensions"),
        ({"w": np.array(["a", "b", "c"])}, "dtype str"),
        ({"w": np.array([1, None, 2])}, "dtype object"),
        ({"w": np.array([1, 2, 3], "datetime64[s]")}, "datetime64"),
        ({"w": np.array([1, 2, 3], "timedelta64[s]")}, "timedelta64"),
        ({"w": np.ones(3, complex)}, "complex128"),
        ({"w": np.ones(3, np.longdouble)}, "rounded to float64"),
        ({"w": np.full(3, 2**63, np.uint64)}, "9223372036854775808"),
        ({"w": [[1, 2], [3]]}, "given as list"),
        ({"w": object()}, "dtype object"),
        ({"w": None, "v": np.ones(3)}, "named 'v'"),
        ({"w": np.ma.masked_array(np.ones(3), [1, 0, 0])}, "MaskedArray"),
        ({"w": {"a": 1}}, "w[j]"),
        ({"w": "abc"}, "w[j]"),
    ],
)
def test_refusals(change: dict, words: str) -> None:
    if isinstance(change.get("w"), np.ndarray) and change["w"].dtype.itemsize == 8 and "rounded" in words:
        pytest.skip("long double is double here")
    arrays = {k: v for k, v in {**GOOD, **change}.items() if not (k in change and change[k] is None)}
    assert words in str(refused(arrays))


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("c", [2**63, -(2**63) - 1, 2**70])
def test_integers_outside_int64_are_refused(target: str, c: int) -> None:
    form = ra.derive_incremental(ra.parse("tensors x[j], c; return y = c * sum[j](x[j])"))
    with pytest.raises(ra.RedalgError, match=f"int64, and it is {c}"):
        form.compile(target)(x=np.ones(3), c=c)
    assert ra.reference(form.spec, x=[1, 1, 1], c=c, exact=True) == 3 * c


def test_a_misspelt_name_is_answered_with_the_right_one() -> None:
    query = ra.tensors("query[i]")
    assert refused({"quary": np.ones(2)}, ra.Spec(y=query * 2)).fix == "did you mean 'query'?"


@pytest.mark.parametrize(
    ("domain", "good", "bad"),
    [
        ("bool", [np.bool_], [np.int64, np.float64, np.complex128]),
        ("integer", [np.int8, np.uint8, np.int64], [np.bool_, np.float64, np.complex64]),
        ("complex", [np.int32, np.float32, np.complex64], []),
        ("positive", [np.int32, np.float16, np.float64, np.bool_], [np.complex64]),
    ],
)
def test_declarations_decide_which_dtypes_are_taken(domain: str, good: list, bad: list) -> None:
    decl = Decl("t", ("j",), frozenset({domain}))
    for dtype in good:
        assert bind_arrays([decl], {"t": np.ones(2, dtype)}).dtypes["t"] == dtype
    for dtype in bad:
        with pytest.raises(ra.RedalgError, match=f"dtype {np.dtype(dtype).name}"):
            bind_arrays([decl], {"t": np.ones(2, dtype)})


def test_data_outside_a_declared_domain_is_not_looked_for() -> None:
    decl = Decl("t", ("j",), frozenset({"positive"}))
    assert bind_arrays([decl], {"t": np.array([-1.0])}).sizes == {"j": 1}


def test_array_likes_scalars_and_settled_lengths() -> None:
    bound = bind(PRODUCT, {"x": [[1, 2, 3]], "w": (1.5, 2, 3)})
    assert isinstance(bound, Bound) and bound.sizes == {"i": 1, "j": 3}
    scale = Decl("scale")
    assert bind_arrays([scale], {"scale": 2}).arrays["scale"] == 2
    assert bind_arrays([scale], {"scale": np.float32(2)}).dtypes["scale"] == np.float32
    assert bind_arrays([scale], {"scale": True}).dtypes["scale"] is bool
    with pytest.raises(ra.RedalgError, match="what was bound before"):
        bind_arrays([Decl("w", ("j",))], {"w": np.ones(3)}, sizes={"j": 4})

    class Wrapped:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.ones(3)

    class OnTheBus:
        def __init__(self) -> None:
            self.array = np.ones(3)

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    for like in (Wrapped(), OnTheBus()):
        assert bind(PRODUCT, {**GOOD, "w": like}).arrays["w"].tolist() == [1, 1, 1]


def test_exact_binding_takes_fractions() -> None:
    thirds = np.array([Fraction(1, 3)] * 3, dtype=object)
    bound = bind(PRODUCT, {**GOOD, "w": thirds}, exact=True)
    assert bound.arrays["w"][0] == Fraction(1, 3)
    with pytest.raises(ra.RedalgError, match="'a'"):
        bind(PRODUCT, {**GOOD, "w": np.array(["a", 1, 2], dtype=object)}, exact=True)


# --- kinds and devices, with stand-ins for libraries that need not be installed ---------------------------------------


class Tensor:
    """The part of torch.Tensor that binding looks at."""

    is_sparse = False

    def __init__(self, array: np.ndarray, device: str = "cpu", requires_grad: bool = False, dtype: str = "") -> None:
        self.array, self.device, self.requires_grad = array, device, requires_grad
        self.dtype = dtype or f"torch.{array.dtype.name}"
        self.shape = array.shape

    def detach(self) -> "Tensor":
        return Tensor(self.array, self.device, False, self.dtype)

    def resolve_conj(self) -> "Tensor":
        return self

    def resolve_neg(self) -> "Tensor":
        return self

    def float(self) -> "Tensor":
        return Tensor(self.array.astype(np.float32), self.device)

    def view(self, dtype: str) -> "Tensor":
        return Tensor(self.array, dtype=dtype)

    def numpy(self) -> np.ndarray:
        assert not self.requires_grad
        return self.array


Tensor.__module__ = "torch"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("torch")
    module.from_numpy = lambda array: Tensor(array)  # type: ignore[attr-defined]
    module.bfloat16 = "torch.bfloat16"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_kinds_and_devices_are_not_mixed(torch: types.ModuleType) -> None:
    on_cpu, on_gpu = Tensor(np.ones(3)), Tensor(np.ones(3), "cuda:0")
    assert "mixed kinds" in refused({**GOOD, "w": on_cpu}).what
    assert "mixed devices" in refused({"x": Tensor(np.ones((2, 3))), "w": on_gpu}).what
    assert "cuda:0" in refused({"x": Tensor(np.ones((2, 3)), "cuda:0"), "w": on_gpu}).what
    assert "requires a gradient" in refused({**GOOD, "w": Tensor(np.ones(3), requires_grad=True)}).what
    assert bind(PRODUCT, {"x": Tensor(np.ones((2, 3))), "w": on_cpu}).origin == Origin("torch")
    with pytest.raises(ra.RedalgError, match="mixed kinds"):
        bind_arrays([Decl("w", ("j",))], {"w": np.ones(3)}, origin=Origin("torch"))


def test_the_same_kind_comes_back(torch: types.ModuleType) -> None:
    result = ra.reference(PRODUCT, x=Tensor(np.ones((2, 3), np.float32)), w=Tensor(np.ones(3, np.float32)))
    assert isinstance(result, Tensor) and result.array.dtype == np.float32


def test_bfloat16_is_computed_wide_and_rounded_once(torch: types.ModuleType) -> None:
    x, total = ra.tensors("x[j]"), ra.Spec(s=ra.sum(ra.tensors("x[j]"), "j"))
    del x
    thirds = Tensor(np.array([1.0, 2**-8, 2**-9], np.float32), dtype="torch.bfloat16")
    assert real_dtype(total, bind(total, {"x": thirds}).dtypes) == np.float32
    result = ra.reference(total, x=thirds)
    assert result.dtype == "torch.bfloat16" and result.array.dtype == np.int16
    widened = (result.array.astype(np.uint32) << 16).view(np.float32)
    assert widened == 1 + 2**-7  # 1 + 3·2^-9 lies past the middle of 1 and 1 + 2^-7
    empty = ra.Spec(empty={"s": 3}, s=ra.sum(ra.tensors("x[j]"), "j"))
    assert ra.reference(empty, x=Tensor(np.ones(0, np.float32), dtype="torch.bfloat16")).array == 0x4040


def test_bfloat16_of_numpy() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    total = ra.Spec(s=ra.sum(ra.tensors("x[j]"), "j"))
    result = ra.reference(total, x=np.array([1.0, 2**-8, 2**-9], ml_dtypes.bfloat16))
    assert result.dtype == ml_dtypes.bfloat16 and float(result) == 1 + 2**-7
    assert BFLOAT16_BITS.itemsize == 2


def test_origins_are_known_without_importing_anything() -> None:
    class Cupy:
        device = types.SimpleNamespace(id=1)

    Cupy.__module__ = "cupy._core.core"

    class Jax:
        def devices(self) -> list:
            return [types.SimpleNamespace(platform="cpu")]

    Jax.__module__ = "jaxlib._jax"

    class Cuda:
        __cuda_array_interface__: dict = {}

    assert origin_of(Cupy()) == Origin("cupy", "cuda:1")
    assert origin_of(Jax()) == Origin("jax", "cpu")
    assert origin_of(Cuda()).device == "cuda"
    assert origin_of(np.float32(1)) == Origin() and origin_of(1.5) is None


@pytest.mark.parametrize("device", [1, 2, None])
def test_what_dlpack_says_of_a_device_and_does_not_say(device: int | None) -> None:
    class Array:
        def __dlpack_device__(self) -> tuple[int, int]:
            if device is None:
                raise TypeError("only arrays without nulls")
            return device, 0

    assert (origin_of(Array()) == Origin()) is (device != 2)


# --- dtypes of results ------------------------------------------------------------------------------------------------


def dtypes(spec: ra.Spec, **arrays: object) -> list[str]:
    return [str(d) for d in result_dtypes(spec, bind(spec, arrays)).values()]


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int8", "int32", "uint8", "int64", "bool"])
def test_results_have_numpys_type(name: str) -> None:
    x = ra.tensors("x[j]")
    array = np.ones(3, name)
    integer = array.dtype.kind in "iub"
    spec = ra.Spec(
        sum=ra.sum(x, "j"),
        mean=ra.mean(x, "j"),
        max=ra.max(x + x, "j"),
        exp=ra.exp(x),
        half=x / 2,
        top=ra.topk(x, 2, "j").values,
        where=ra.argmax(x, "j"),
        any=ra.any(x > 0, "j"),
        count=ra.sum(ra.index("j"), "j"),
        weak=2.5 * x * ra.size("j") + ra.index("j"),
    )
    floating = "float64" if integer else name
    same = "int64" if name == "bool" else name
    total = "int64" if integer else name
    assert dtypes(spec, x=array) == [
        *(total, floating, same, floating, floating, same, "int64", "bool", "int64", floating)
    ]


def test_mixed_tensors_promote_as_in_numpy() -> None:
    x, y, n, c, s = *ra.tensors("x[j] y[j] n[j]"), ra.tensors("c[j]", complex=True), ra.scalar("s")
    single, double, integers = np.ones(2, np.float32), np.ones(2), np.ones(2, np.int32)
    assert dtypes(ra.Spec(o=x * y), x=single, y=double) == ["float64"]
    assert dtypes(ra.Spec(o=x * n), x=single, n=integers) == ["float64"]
    assert dtypes(ra.Spec(o=ra.where(n > 0, x, 0)), x=single, n=integers) == ["float32"]
    assert dtypes(ra.Spec(o=x * s), x=single, s=0.5) == ["float32"]
    assert dtypes(ra.Spec(o=x * s), x=single, s=np.float64(0.5)) == ["float64"]
    assert dtypes(ra.Spec(o=n * s), n=integers, s=0.5) == ["float64"]
    assert dtypes(ra.Spec(o=ra.sum(c * x, "j")), c=np.ones(2, np.complex64), x=single) == ["complex64"]
    assert dtypes(ra.Spec(o=ra.abs(c)), c=np.ones(2, np.complex64)) == ["float32"]
    assert dtypes(ra.Spec(o=ra.cast(x, "int8")), x=single) == ["float32"]


def test_the_dtype_of_computation_is_wide_enough() -> None:
    x, n = ra.tensors("x[j] n[j]")
    product, half = ra.Spec(o=x * n), np.ones(2, np.float16)
    assert real_dtype(product, bind(product, {"x": np.ones(2, np.float32), "n": np.ones(2, int)}).dtypes) == np.float64
    assert real_dtype(product, bind(product, {"x": half, "n": half}).dtypes) == np.float32


def test_a_users_monoid_has_the_widest_dtype_of_its_parts() -> None:
    import sympy

    x = ra.tensors("x[j]")
    pair = ra.Monoid("pair", lambda a, b: (a[0] + b[0], sympy.Max(a[1], b[1])), (0, -sympy.oo))
    first, second = ra.reduce((x, x), "j", monoid=pair)
    spec = ra.Spec(a=first, b=second)
    assert dtypes(spec, x=np.ones(3, np.float32)) == ["float32", "float32"]


def test_a_tensor_along_the_axis_of_a_topk_has_its_length() -> None:
    spec = ra.parse("return a = sum[k](topk[j:2:k](y[j]).values*w[k])")
    assert ra.reference(spec, y=[1.0, 5.0, 2.0], w=[1.0, 10.0]) == 25.0
    assert ra.derive_incremental(spec, axis="j").compile("numpy")(y=[1.0, 5.0, 2.0], w=[1.0, 10.0]) == 25.0
    with pytest.raises(ra.RedalgError, match="axis k has length 3 here and 2 in the topk along it"):
        ra.reference(spec, y=[1.0, 5.0, 2.0], w=[1.0, 10.0, 0.0])


@pytest.mark.parametrize("dtype", ["i2", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_the_order_of_bytes_changes_nothing(dtype: str) -> None:
    spec = ra.Spec(y=ra.sum(ra.tensors("z[j]", complex=True), "j"))
    own = np.array([3, 0, 1], dtype)
    plain = bind(spec, {"z": own})
    for order in "<>":
        swapped = bind(spec, {"z": own.astype(np.dtype(dtype).newbyteorder(order))})
        assert swapped.dtypes == plain.dtypes and swapped.dtypes["z"].isnative
        np.testing.assert_array_equal(swapped.arrays["z"], own)


@pytest.mark.parametrize("way", ["reference", "numpy", "cpu", "accumulator", "grouped"])
def test_integers_beyond_int64_are_refused_in_either_order_of_bytes(way: str) -> None:
    form = ra.derive_incremental(ra.Spec(y=ra.max(ra.tensors("k[j]"), "j")))
    calls = {
        "reference": lambda k: ra.reference(form.spec, k=k),
        "accumulator": lambda k: form.accumulator().update(k=k),
        "grouped": lambda k: form.grouped().update(by=[0, 1], k=k),
    }
    call = calls.get(way) or (lambda k: form.compile(way)(k=k))
    for order in "<>":
        call(np.array([2**63 - 1, 1], f"{order}u8"))
        with pytest.raises(ra.RedalgError, match="int64, and it holds 18446744073709551615"):
            call(np.array([2**64 - 1, 1], f"{order}u8"))


@pytest.mark.parametrize("domain", ["integer", "bool", "", "complex"])
def test_empty_lists_are_of_any_declared_kind(domain: str) -> None:
    """They hold no floats, though NumPy takes them for such; an array says what it is of."""
    reduction = "any" if domain == "bool" else "sum"
    form = ra.derive_incremental(ra.parse(f"tensors k[j] {domain}; return y = {reduction}[j](k[j])"))
    piece = [True] if domain == "bool" else [3]
    acc, groups = form.accumulator(), form.grouped()
    for chunk in ([], piece, (), piece, []):
        acc.update(k=chunk)
        groups.update(by=[0] * len(chunk), k=chunk)
    wanted = ra.reference(form.spec, k=[*piece, *piece])
    assert acc.result() == groups.result()[1] == wanted and acc.result().dtype == wanted.dtype
    nothing = {way(k=[]).item() for way in (form.compile("numpy"), lambda k: ra.reference(form.spec, k=k))}
    assert nothing == {0}
    if domain in ("integer", "bool"):
        with pytest.raises(ra.RedalgError, match="float64"):
            ra.reference(form.spec, k=np.zeros(0))
