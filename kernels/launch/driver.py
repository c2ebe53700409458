"""Loading and launching kernels through the CUDA driver, with as little as possible done per call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from redalg.errors import RedalgError
from redalg.kernels.ir.program import Module, Param
from redalg.kernels.launch.ptx import CC, ptx_of
from redalg.kernels.launch.store import Disk
from redalg.kernels.launch.written import Prepared, written
from redalg.kernels.schedule.target import Target

CHANGING = ("operand", "number", "result", "scratch", "counters", "maps")  # arguments that differ from call to call
NUMBERS = {"float64": ctypes.c_double, "int64": ctypes.c_int64, "bool": ctypes.c_bool}


def available() -> bool:
    """Whether there is a GPU that kernels can be launched on, with the packages that takes."""
    return not _missing()


def _missing() -> str:
    """What stands against launching kernels, or "". Numba is looked for and not imported: compiled ones need none."""
    try:
        absent = [name for name in ("numba", "numba_cuda") if find_spec(name) is None]
        if absent:
            return f"there is no module {absent[0]}"
        from cuda.bindings import driver
    except Exception as problem:  # whatever is wrong with the installation, there is no GPU to be used
        return str(problem) or type(problem).__name__
    error, count = _try(driver)
    return error or ("" if count else "the driver sees no device")


@lru_cache(maxsize=1)
def _try(driver: Any) -> tuple[str | None, int]:
    try:
        (error,) = driver.cuInit(0)
        if error:
            return str(error), 0
        error, count = driver.cuDeviceGetCount()
    except Exception as problem:  # no driver library
        return str(problem), 0
    return (str(error), 0) if error else (None, count)


def require() -> None:
    """Raises: RedalgError where `available` is false, saying what is missing."""
    why = _missing()
    if not why:
        return
    raise RedalgError(
        'target "cuda"',
        "form.compile",
        f"no NVIDIA GPU can be used here: {why.strip()}",
        "pip install 'redalg[cuda]' on a machine with a GPU, form.compile(\"cpu\"), or redalg.explore.kernel",
    )


def checked(result: Any, what: str = "the CUDA driver") -> Any:
    """The values of a driver call; its error as one of ours."""
    error, values = result[0], result[1:]
    if int(error):
        name = getattr(error, "name", str(error))
        fix = (
            "free memory or use smaller arrays"
            if "OUT_OF_MEMORY" in name
            else "see the CUDA driver's documentation of it"
        )
        raise RedalgError(f"{name} ({int(error)})", what, "the CUDA driver refused", fix)
    return values[0] if len(values) == 1 else values


@contextmanager
def relaxed() -> Iterator[None]:
    """What is done here once may be done while a stream of the caller is captured: loading code, taking memory."""
    from cuda.bindings import driver

    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    try:
        error, before = driver.cuThreadExchangeStreamCaptureMode(mode)
    except Exception:  # there is no driver library, as where a stand-in takes the launches
        error, before = 1, None
    try:
        yield
    finally:
        if not int(error):
            driver.cuThreadExchangeStreamCaptureMode(before)


def kept(size: int, fill: Callable[[int, Any], Any], what: str) -> int:
    """The address of device memory that is written once, before anything reads it, and never given back: a captured
    graph may read it, and count there, as long as there is the graph.

    `fill` enqueues what writes it, given its address and a stream; `what` lies there.
    """
    from cuda.bindings import driver as d

    with relaxed():
        address = int(checked(d.cuMemAlloc(size), f"memory for {what}"))
        own = checked(d.cuStreamCreate(d.CUstream_flags.CU_STREAM_NON_BLOCKING))
        checked(fill(address, own), f"writing {what}")
        checked(d.cuStreamSynchronize(own))
        checked(d.cuStreamDestroy(own))
    return address


class Pinned:
    """Memory of the host that kernels write, too, at 0 to begin with: `address` here, and `device` there.

    It is never given back: a captured graph writes there as long as there is the graph.
    """

    def __init__(self, size: int, what: str) -> None:
        from cuda.bindings import driver as d

        with relaxed():
            flags = d.CU_MEMHOSTALLOC_DEVICEMAP | d.CU_MEMHOSTALLOC_PORTABLE
            self.address = int(checked(d.cuMemHostAlloc(size, flags), f"memory for {what}"))
            ctypes.memset(self.address, 0, size)
            self.device = int(checked(d.cuMemHostGetDevicePointer(self.address, 0), f"the address of {what}"))


_thread = threading.local()


def activate(device: int) -> None:
    """Make the device's primary context current in this thread; with one device, it stays so."""
    if is_only(device):
        return
    from cuda.bindings import driver

    _thread.only = device if checked(driver.cuDeviceGetCount()) == 1 else None
    checked(driver.cuCtxSetCurrent(_context(device)), "cuCtxSetCurrent")


def is_only(device: int) -> bool:
    """Whether the device is the only one, and its context current in this thread."""
    return getattr(_thread, "only", None) == device


@lru_cache(maxsize=64)
def _context(device: int) -> Any:
    from cuda.bindings import driver

    return checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(device))), "cuDevicePrimaryCtxRetain")


FACTS = {  # fact (`Target.of`) -> attribute of a device, and what one of its units is
    "multiprocessors": ("MULTIPROCESSOR_COUNT", 1),
    "l2": ("L2_CACHE_SIZE", 1),
    "clock": ("CLOCK_RATE", 1e3),
    "registers": ("MAX_REGISTERS_PER_MULTIPROCESSOR", 1),
    "threads": ("MAX_THREADS_PER_MULTIPROCESSOR", 1),
    "blocks": ("MAX_BLOCKS_PER_MULTIPROCESSOR", 1),
    "block_threads": ("MAX_THREADS_PER_BLOCK", 1),
    "block_shared": ("MAX_SHARED_MEMORY_PER_BLOCK", 1),
    "optin_shared": ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 1),
    "shared": ("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 1),
}


def facts_of(driver: Any, device: int) -> dict[str, Any]:
    """What a device says of itself, as `Target.of` takes it; what an older driver does not say is left out."""
    handle, kinds = checked(driver.cuDeviceGet(device)), driver.CUdevice_attribute

    def fact(word: str) -> int:
        kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{word}", None)
        return 0 if kind is None else int(checked(driver.cuDeviceGetAttribute(kind, handle)))

    name = checked(driver.cuDeviceGetName(128, handle)).split(b"\0")[0].decode()
    found: dict[str, Any] = {"name": name, "cc": (fact("COMPUTE_CAPABILITY_MAJOR"), fact("COMPUTE_CAPABILITY_MINOR"))}
    found |= {field: value * unit for field, (word, unit) in FACTS.items() if (value := fact(word))}
    if ratio := fact("SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO"):
        found["double"] = 1 / ratio
    return found


@lru_cache(maxsize=64)
def target_of(device: int) -> Target:
    """The facts of a device, as it describes itself; the bandwidth of one that the table lacks is measured."""
    from cuda.bindings import driver

    found = Target.of(facts_of(driver, device))
    return found if found.listed else with_bandwidth(driver, device, found, Disk())


MEASURED_BYTES, MEASURED_TIMES = 1 << 28, 5  # of a copy, which is read and written


def with_bandwidth(driver: Any, device: int, target: Target, disk: Disk) -> Target:
    """The target with the bandwidth that a copy reaches there: measured once, and kept on disk.

    Where it cannot be measured (no memory left, a stream that is captured) the target's own guess stays.
    """
    key = f"bandwidth of {target.name}, {target.cc}, {target.multiprocessors}"
    known = disk.get(key)
    copied = known.get("copied") if known is not None else None
    if not isinstance(copied, float) or copied <= 0:
        try:
            copied = _copied(driver, device)
        except RedalgError:
            return target
        disk.put(key, {"copied": copied})
    return replace(target, bandwidth=copied * target.bandwidth / target.reachable)


def _copied(driver: Any, device: int) -> float:
    """Bytes read and written a second by the fastest of some copies on the device."""
    activate(device)
    with ExitStack() as stack, relaxed():
        places = []
        for _ in range(2):
            places.append(checked(driver.cuMemAlloc(MEASURED_BYTES), "memory for measuring"))
            stack.callback(driver.cuMemFree, places[-1])
        stream = checked(driver.cuStreamCreate(1))  # not blocking: other streams go on
        stack.callback(driver.cuStreamDestroy, stream)
        begin, end = (checked(driver.cuEventCreate(0)) for _ in range(2))
        for event in (begin, end):
            stack.callback(driver.cuEventDestroy, event)
        times = []
        for _ in range(MEASURED_TIMES):
            checked(driver.cuEventRecord(begin, stream))
            checked(driver.cuMemcpyDtoDAsync(places[0], places[1], MEASURED_BYTES, stream))
            checked(driver.cuEventRecord(end, stream))
            checked(driver.cuEventSynchronize(end), "measuring the bandwidth")
            times.append(float(checked(driver.cuEventElapsedTime(begin, end))) * 1e-3)
    if min(times) <= 0:
        raise RedalgError("a copy of no time", "measuring the bandwidth", "the clock did not move", "measure again")
    return 2 * MEASURED_BYTES / min(times)


@dataclass(frozen=True)
class Geometry:
    """Blocks, threads of a block, blocks of a cluster; `persistent`: no more blocks than can run at once, in whole
    groups of `waiting` that meet at a grid barrier; `early`: it may begin while the kernel before it ends, and waits
    for that itself."""

    blocks: int
    threads: int
    cluster: int = 1
    persistent: bool = False
    waiting: int = 1
    early: bool = False


def clear(pointer: int, count: int, stream: int) -> None:
    """Set `count` 32-bit words to 0, in the order of the stream."""
    from cuda.bindings import driver

    checked(driver.cuMemsetD32Async(pointer, 0, count, stream), "clearing a counter")


def copy(target: int, source: int, size: int, stream: int) -> None:
    """Copy bytes from one place in device memory to another, in the order of the stream."""
    from cuda.bindings import driver

    checked(driver.cuMemcpyDtoDAsync(target, source, size, stream), "copying a result")


def read(source: int, size: int, stream: int) -> bytes:
    """Bytes of device memory, when what was enqueued before on the stream is done."""
    from cuda.bindings import driver

    held = (ctypes.c_char * size)()
    checked(driver.cuMemcpyDtoHAsync(ctypes.addressof(held), source, size, stream), "reading from the device")
    wait(stream)
    return bytes(held)


def wait(stream: int) -> None:
    """Return when everything on the stream is done."""
    from cuda.bindings import driver

    checked(driver.cuStreamSynchronize(stream), "waiting for a stream")


def finished(device: int) -> None:
    """Wait for everything that a device was given to do."""
    from cuda.bindings import driver

    activate(device)
    checked(driver.cuCtxSynchronize(), "waiting for the device")


def is_capturing(stream: int) -> bool:
    """Whether what is enqueued on the stream is being recorded (or may not be, for another stream that is)."""
    from cuda.bindings import driver

    error, status = driver.cuStreamIsCapturing(stream)
    return bool(int(error) or int(status))


UNLAUNCHED = {  # errors that say that a device cannot run a kernel of this shape, whatever its arguments
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
}


class NotLaunched(RedalgError):
    """A kernel that the device cannot run, before anything of it ran: another plan may."""


def launched(result: Any, what: str) -> Any:
    """The values of a driver call that loads or launches a kernel.

    Raises: NotLaunched where the kernel's shape is what it refuses; RedalgError for anything else.
    """
    try:
        return checked(result, what)
    except RedalgError as error:
        if getattr(result[0], "name", str(result[0])) in UNLAUNCHED:
            raise NotLaunched(error.what, error.where, error.why, 'schedule="thread", or smaller tiles') from error
        raise


class Launch:
    """A loaded kernel with its arguments packed once; a call only puts pointers and numbers in their places.

    Arguments of calls from several threads do not meet: they lie on the stack (`written`), or each thread has a buffer.
    """

    def __init__(
        self, module: Module, cc: CC, limit: int | None, geometry: Geometry, fixed: Mapping[tuple[str, str, int], int]
    ) -> None:
        self.module, self.geometry = module, geometry
        self.function = _loaded(module, cc, limit)
        if geometry.persistent:
            self.geometry = replace(geometry, blocks=_running(self.function, geometry, module))
        self.slots = [i for i, p in enumerate(module.params) if p.role in CHANGING]
        self._values = [_initial(p, fixed) for p in module.params]
        self._local = threading.local()
        self._written: dict[Any, Callable[..., int]] = {}  # all threads'

    def prepared(self, tensors: Mapping[int, int] | None = None, pointer: int = 0) -> Any:
        """``launch(stream, *given)``, which gives the driver's error; `given` go to `slots`, as addresses and numbers
        or, of `tensors`, as `written` takes them; for these None where the driver is called through bindings."""
        direct = _direct() if _LAUNCH is _BINDINGS else None
        if direct is None:
            return self._by_bindings() if tensors is None else None
        key = tuple((tensors or {}).items())
        if key in self._written:
            return self._written[key]
        config, kept = _configuration(self.module.shared, self.geometry)
        kinds = {ctypes.c_double: "double", ctypes.c_bool: "i8"}
        changing = set(self.slots)
        values = [kinds.get(type(v), "i64") if k in changing else v.value for k, v in enumerate(self._values)]
        self._written[key] = written(Prepared(direct, int(self.function), config, values, tensors or {}, pointer), kept)
        return self._written[key]

    def _by_bindings(self) -> Callable[..., Any]:
        """The same with buffers of one thread, where the driver cannot be called directly."""
        values = [type(v)(v.value) for v in self._values]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        function, buffer, shared = self.function, ctypes.addressof(pointers), self.module.shared
        slots = [values[i] for i in self.slots]
        blocks, threads = self.geometry.blocks, self.geometry.threads
        together = self.geometry.cluster > 1 or self.geometry.waiting > 1 or self.geometry.early
        config = self._config() if together else None

        def launch(stream: int, *given: Any, kept: Any = (pointers, values)) -> Any:
            for place, value in zip(slots, given, strict=True):
                place.value = value
            if config is None:
                return _LAUNCH(function, blocks, 1, 1, threads, 1, 1, shared, stream, buffer, 0)[0]
            config.hStream = stream
            return _LAUNCH_EX(config, function, buffer, 0)[0]

        return launch

    def _config(self) -> Any:
        from cuda.bindings import driver

        config, g = driver.CUlaunchConfig(), self.geometry
        config.gridDimX, config.gridDimY, config.gridDimZ = g.blocks, 1, 1
        config.sharedMemBytes = self.module.shared
        config.blockDimX, config.blockDimY, config.blockDimZ = g.threads, 1, 1
        attributes = []
        if g.cluster > 1:
            shape = driver.CUlaunchAttribute()
            shape.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            shape.value.clusterDim.x, shape.value.clusterDim.y, shape.value.clusterDim.z = g.cluster, 1, 1
            attributes.append(shape)
        if g.waiting > 1:
            together = driver.CUlaunchAttribute()
            together.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            together.value.cooperative = 1
            attributes.append(together)
        if g.early:
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            attributes.append(early)
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        return config

    def __call__(self, given: Sequence[Any], stream: int) -> None:
        """`given`: addresses and numbers for `slots`, in order."""
        made = getattr(self._local, "made", None)
        if made is None:
            made = self._local.made = self.prepared()
        error = made(stream, *given)
        if error:
            self.failed(error)

    def failed(self, error: Any) -> None:
        """Raises: NotLaunched or RedalgError, as `launched`."""
        g = self.geometry
        what = f"launching {self.module.entry} with {g.blocks} blocks of {g.threads} threads"
        launched((_result(error) if type(error) is int else error,), what)


def _running(function: Any, g: Geometry, module: Module) -> int:
    """Blocks of a persistent grid: as many as run at once, in whole groups."""
    from cuda.bindings import driver

    each = checked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, g.threads, module.shared), "occupancy")
    kinds = driver.CUdevice_attribute
    fact = driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, checked(driver.cuCtxGetDevice()))
    group = g.cluster * g.waiting
    found = int(each) * int(checked(fact)) // group * group
    if g.waiting > 1 and not found:
        why = f"{g.waiting} blocks meet at a grid barrier, and {int(each) * int(checked(fact))} run at once"
        raise NotLaunched(f"a grid of {g.blocks} blocks", f"launching {module.entry}", why, "fewer splits: split=…")
    return min(g.blocks, max(group, found))


def _LAUNCH(*arguments: Any) -> Any:
    from cuda.bindings import driver

    return driver.cuLaunchKernel(*arguments)


def _LAUNCH_EX(*arguments: Any) -> Any:
    from cuda.bindings import driver

    return driver.cuLaunchKernelEx(*arguments)


_BINDINGS = _LAUNCH  # tests put something else in its place


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: what it is, and a union of 64 bytes that begins with numbers."""

    _fields_ = (("id", ctypes.c_uint64), ("value", ctypes.c_uint32 * 16))


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


# CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, _COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION
CLUSTER, COOPERATIVE, EARLY = 4, 2, 6


@lru_cache(maxsize=1)
def _direct() -> int | None:
    """The address of the driver's own cuLaunchKernelEx; None where the driver does not have it."""
    try:
        return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


def _configuration(shared: int, g: Geometry) -> tuple[bytes, Any]:
    """A configuration without its stream, and what it points to."""
    wanted: list[tuple[int, tuple[int, ...]]] = [(CLUSTER, (g.cluster, 1, 1))] if g.cluster > 1 else []
    wanted += [(COOPERATIVE, (1,))] if g.waiting > 1 else []
    wanted += [(EARLY, (1,))] if g.early else []
    attributes = (_Attribute * max(1, len(wanted)))()
    for place, (name, numbers) in zip(attributes, wanted, strict=False):
        place.id, place.value[: len(numbers)] = name, numbers
    config = _Configuration((g.blocks, 1, 1), (g.threads, 1, 1), shared, 0, ctypes.addressof(attributes), len(wanted))
    return bytes(config), attributes


def _result(code: int) -> Any:
    from cuda.bindings import driver

    return driver.CUresult(code)


def _initial(p: Param, fixed: Mapping[tuple[str, str, int], int]) -> Any:
    if p.role in ("operand", "result", "scratch", "counters", "maps"):
        return ctypes.c_uint64(0)
    if p.role == "number":
        return NUMBERS[p.dtype](0)
    return ctypes.c_int64(fixed[p.role, p.name, p.dim])


_FUNCTIONS: dict[tuple[Any, ...], Any] = {}
_LIBRARIES: list[Any] = []  # kept: their code goes with them


def _loaded(module: Module, cc: CC, limit: int | None) -> Any:
    """The kernel in the current context."""
    from cuda.bindings import driver

    context = int(checked(driver.cuCtxGetCurrent()))
    key = (module.source, module.threads, module.shared, limit, context)
    if key not in _FUNCTIONS:
        text, entry = ptx_of(module, cc, limit)
        loaded = launched(driver.cuModuleLoadData(text.encode() + b"\0"), f"loading {module.entry}")
        _LIBRARIES.append(loaded)
        function = checked(driver.cuModuleGetFunction(loaded, entry.encode()), f"finding {entry}")
        if cc >= (9, 0):  # clusters of 16 blocks, where the device has room for them
            wide = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            driver.cuFuncSetAttribute(function, wide, 1)
        if module.shared:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            what = f"giving {module.shared} bytes of shared memory to {module.entry}"
            launched(driver.cuFuncSetAttribute(function, most, module.shared), what)
        _FUNCTIONS[key] = function
    return _FUNCTIONS[key]
