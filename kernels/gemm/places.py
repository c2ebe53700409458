"""Where the operands of a matrix product lie: which are read in place, and as what.

The rows of an operand, and its terms, may be several axes each. Where these lie one behind the other, they are one
axis of a matrix (a tiled tensor map of two dimensions, and the batch). Else the rows of the left operand are *pixels*
(implicit GEMM): a tensor map in im2col mode walks the positions of a window over an array, image by image, one row of
a tile for each, and brings their channels, shifted by a tap of the window; what lies outside the array is zero. So a
convolution ``sum[r,s,c](x[b, 2*h+r-1, 2*w+s-1, c] * U[r,s,c,n])`` is a product of (b, h, w) by n whose terms are taps
(r, s) times blocks of 64 channels, and neither windows nor zeros around the array are ever written to memory. Rows
that do not lie one behind the other (a part of an image) are pixels of a window of one element.

What fits neither is prepared by a kernel before the product: a matrix with a row for every pixel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

from redalg.graph.node import Dimension, Node, rename_axes, substitute, walk
from redalg.kernels.gemm.match import FLOAT8, Cut, Side
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch.planned import Pixels, Spatial

RANK = 5  # dimensions of a tensor map
STEP = 8  # the largest step from pixel to pixel


@dataclass(frozen=True)
class Place:
    """Where an operand's matrix is read: a tensor of the call, or scratch that a kernel before this one fills.

    ``flat``: the axis that numbers rows lies contiguous, not the stream. ``why``: it is not read in place; "" if it is.
    ``strides``: in elements, of the batch, the rows (one axis) and the stream, or the channels of a tap.
    ``pixels``: how rows of the left operand are walked, where they are no axis; ``taps``: strides of the taps, the
    first axis of them first, of a right operand beside such rows. ``twice``: the left operand is this one, too.
    """

    name: str
    dtype: str
    strides: tuple[int, ...]
    flat: bool = False
    why: str = ""
    pixels: Pixels | None = None
    taps: tuple[int, ...] = ()
    twice: bool = False


def places_of(
    cut: Cut, kinds: Sequence[str], sizes: Mapping[str, int], views: Mapping[str, View], walks: bool = True
) -> tuple[Place, ...]:
    """Every operand in place if the tensor memory accelerator, or copies of 16 bytes, can read it there, else in
    scratch. `walks`: whether rows may be pixels."""
    found = tuple(_place_of(cut, side, kind, sizes, views) for side, kind in zip(cut.sides, kinds, strict=True))
    if (
        found[0].why
        and found[1].why
        and _alike(cut, views)
        and found[0] == replace(found[1], name=found[0].name, why=found[0].why)
    ):
        found = (found[0], replace(found[1], name=found[0].name, twice=True), *found[2:])
    if not found[0].why or not cut.left.bare or not walks:
        return found
    pixels = _pixels(cut, kinds[0], sizes, views)
    if isinstance(pixels, str):
        return replace(found[0], why=f"{found[0].why}, and {pixels}"), *found[1:]
    sides = zip(cut.sides[1:], found[1:], strict=True)
    rights = [made for side, place in sides if (made := _of_taps(cut, side, place, pixels, sizes, views)) is not None]
    if len(rights) < len(found) - 1:
        return found
    return Place(cut.left.node.attr.name, kinds[0], (pixels.spatial[0].stride, 1), pixels=pixels), *rights


def _place_of(cut: Cut, side: Side, kind: str, sizes: Mapping[str, int], views: Mapping[str, View]) -> Place:
    why = _not_in_place(cut, side, kind, sizes, views)
    own = side.axes[len(cut.batch) :]
    if isinstance(why, Place):
        return why
    each, flat = STORAGE[kind], STORAGE[kind] == 2 and _across(side, own, cut.along, views)
    lengths = prod(sizes[a] for a in own), sizes[cut.stream]
    outer_length, inner_length = lengths[::-1] if flat else lengths
    pitch = -(-inner_length * each // 16) * 16 // each
    shape = [sizes[a] for a in cut.batch]
    outer = [prod(shape[d + 1 :]) * outer_length * pitch for d in range(len(shape))]
    return Place(side.name, kind, (*outer, *((1, pitch) if flat else (pitch, 1))), flat, why)


def _across(side: Side, own: Sequence[str], along: Sequence[str], views: Mapping[str, View]) -> bool:
    """Whether what a computed operand reads lies with its rows contiguous, not its terms: so does the operand then."""
    leaves = {n.attr for n in walk(side.node) if n.op == "tensor" and n.axes >= {*own, *along}}
    strides = [dict(zip(leaf.axes, views[leaf.name].strides, strict=True)) for leaf in leaves if leaf.name in views]
    products = any(n.op == "reduce" and n.attr.axes != tuple(along) for n in walk(side.node))
    return bool(strides) and not products and all(s[own[-1]] == 1 and s[along[-1]] != 1 for s in strides)


def _not_in_place(cut: Cut, side: Side, kind: str, sizes: Mapping[str, int], views: Mapping[str, View]) -> Place | str:
    if different := _different(cut, side, kind):
        return different
    leaf, row, stream = side.node.attr, ", ".join(side.axes[len(cut.batch) :]), ", ".join(cut.along)
    strides = _of_matrix(cut, side, sizes, views[leaf.name])
    if isinstance(strides, str):
        return strides
    length = {a: sizes[a] for a in cut.batch}
    length |= {row: prod(sizes[a] for a in side.axes[len(cut.batch) :]), stream: sizes[cut.stream]}
    flat = strides[stream] != 1 or length[stream] == 1 and strides[row] == 1
    inner = row if flat else stream
    if strides[inner] != 1 and length[inner] > 1:
        return f"{leaf.name} is contiguous along neither {row} nor {stream}"
    if flat and kind in FLOAT8:
        return f"{leaf.name} is not contiguous along {stream}"
    found = Place(leaf.name, kind, tuple(strides[a] for a in length), flat)
    del length[inner]
    return _unaligned(leaf.name, _bytes(strides, length, kind), views[leaf.name].align) or found


def _alike(cut: Cut, views: Mapping[str, View]) -> bool:
    """Whether both operands are the same numbers, of one array: the right one's rows are named otherwise."""
    left, right = cut.left, cut.right
    if len(cut.rows) > 1 or cut.parallel or cut.given[0] or cut.given[1]:
        return False
    renamed, own = rename_axes(right.node, {cut.column: cut.rows[0]}), rename_axes(left.node, {})
    leaves = {n: n.attr for n in walk(renamed) if n.op == "tensor"}
    arrays = {d.name: d for n in walk(left.node) if n.op == "tensor" for d in [n.attr]}
    same = {
        n: Node("tensor", (), b)
        for n, d in leaves.items()
        for b in arrays.values()
        if (b.array or b.name) == (d.array or d.name) and b.axes == d.axes and views[b.name] == views[d.name]
    }
    return substitute(renamed, dict(same)) is own


def _bytes(strides: Mapping[str, int], length: Mapping[str, int], kind: str) -> dict[str, int]:
    """From one element to the next along axes that have several."""
    return {a: strides[a] * STORAGE[kind] for a, n in length.items() if n != 1}


def _of_matrix(cut: Cut, side: Side, sizes: Mapping[str, int], view: View) -> dict[str, int] | str:
    """Strides of the batch, the rows as one axis and the terms as one; or why they are none."""
    leaf, own = side.node.attr, side.axes[len(cut.batch) :]
    if view.array:
        return f"the zeros around {leaf.array or leaf.name} lie nowhere"
    strides = dict(zip(leaf.axes, view.strides, strict=True))
    for axes in (own, cut.along):
        if (step := _as_one(axes, strides, sizes)) is None:
            return f"{', '.join(axes)} of {leaf.name} do not lie one behind the other"
        strides[", ".join(axes)] = step
    return strides


def _as_one(axes: Sequence[str], strides: Mapping[str, int], sizes: Mapping[str, int]) -> int | None:
    """The stride of axes that lie one behind the other, the last one running first; None if they do not."""
    long = [a for a in axes if sizes[a] != 1] or [axes[-1]]
    behind = all(strides[a] == strides[b] * sizes[b] for a, b in zip(long, long[1:], strict=False))
    return strides[long[-1]] if behind else None


def _different(cut: Cut, side: Side, kind: str) -> str:
    """Why no tensor holds the operand as it is multiplied; empty if one does."""
    if not side.bare:
        return "it is computed"
    leaf, axes = side.node.attr, [*side.axes, *cut.along]
    if side.format != kind:
        return f"{leaf.name} is {side.format}, and {kind} is multiplied"
    if set(axes) != set(leaf.axes) or len(cut.batch) + 2 > RANK:
        return f"{leaf.name} has other axes than {', '.join(axes)}"
    return ""


def _unaligned(name: str, steps: Mapping[str, int], align: int) -> str:
    """Why copies of 16 bytes do not start where they have to, with these steps in bytes; empty if they do."""
    for axis, step in steps.items():
        if step % 16 or step <= 0:
            return f"{name} has a stride of {step} bytes along {axis}, not a positive multiple of 16"
    return f"{name} does not start at a multiple of 16 bytes" if align < 16 else ""


# --- pixels ----------------------------------------------------------------------------------------------------------


def _pixels(cut: Cut, kind: str, sizes: Mapping[str, int], views: Mapping[str, View]) -> Pixels | str:
    """How the left operand's rows are walked, or why they are not."""
    if why := _no_pixels(cut, kind):
        return why
    leaf = cut.left.node.attr
    view = views[leaf.name]
    dimensions = leaf.dimensions or tuple(Dimension(((a, 1, 0),)) for a in leaf.axes)
    by_row = {d.terms[0][0]: d for d in dimensions if d.terms[0][0] in cut.rows}
    channels = [d for d in dimensions if d.terms[0][0] not in cut.rows]
    if [len(d.terms) for d in channels] != [1] or by_row.keys() != {*cut.rows}:
        return "its terms are not the channels of windows"
    strides, channel = dict(zip(leaf.axes, view.strides, strict=True)), channels[0].terms[0][0]
    lengths = {d.terms[0][0]: n for d, n in zip(dimensions, view.array, strict=False)}
    found = _walked(cut, channel, by_row, strides, sizes, lengths)
    laws = chain(_lie(leaf.name, channel, by_row, strides, sizes), _laws(found, by_row.values()))
    why = next((why for holds, why in laws if not holds), "")
    along = zip((*(s.row for s in found.spatial), cut.rows[0]), found.strides[1:], found.lengths[1:], strict=True)
    return why or _unaligned(leaf.name, {a: step * 2 for a, step, n in along if n > 1}, view.align) or found


def _no_pixels(cut: Cut, kind: str) -> str:
    """Why the left operand has no pixels, whatever its windows; empty if it may."""
    if cut.batch:
        return f"{', '.join(cut.batch)} would be a dimension more"
    return _different(cut, cut.left, kind) if STORAGE[kind] == 2 else f"it is {kind}"


def _lie(
    name: str, channel: str, by_row: Mapping[str, Dimension], strides: Mapping[str, int], sizes: Mapping[str, int]
) -> Iterator[tuple[bool, str]]:
    """Whether the array lies as a map takes it."""
    yield strides[channel] == 1 or sizes[channel] == 1, f"{name} is not contiguous along {channel}"
    overlap = all(_overlap(d, strides, sizes) for d in by_row.values())
    yield overlap, f"windows of {name} do not lie over each other, as in one array"


def _overlap(d: Dimension, strides: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Whether windows along a dimension are those of one array: a call may pass a copy of each window instead."""
    each = {strides[a] / step for a, step, _ in d.terms if sizes[a] > 1}
    return len(each) < 2 and all(stride == int(stride) for stride in each)


def _walked(
    cut: Cut,
    channel: str,
    by_row: Mapping[str, Dimension],
    strides: Mapping[str, int],
    sizes: Mapping[str, int],
    lengths: Mapping[str, int],
) -> Pixels:
    """The first axis of rows counts images, if it is no axis of windows. `lengths`: of an array without the zeros."""
    whole = len(by_row[cut.rows[0]].terms) == 1 and len(cut.rows) > 1
    spatial = [_spatial(by_row[a], strides, sizes) for a in reversed(cut.rows[whole:])]
    spatial = [_around(s, by_row[s.row].pad, lengths[s.row]) if lengths else s for s in spatial]
    images = (sizes[cut.rows[0]], strides[cut.rows[0]]) if whole else (1, spatial[-1].stride * spatial[-1].length)
    return Pixels(sizes[channel], tuple(spatial), images, tuple((a, sizes[a]) for a in cut.along if a != channel))


def _laws(found: Pixels, dimensions: Collection[Dimension]) -> Iterator[tuple[bool, str]]:
    """Whether each law of a tensor map in im2col mode holds, and what is wrong where it does not."""
    yield 0 < len(found.spatial) <= RANK - 2, f"a tensor map has {RANK - 2} dimensions of pixels at most"
    yield len(found.taps) <= RANK - 2, f"a tensor map of the right operand has {RANK - 2} taps at most"
    yield all(len(d.terms) <= 2 for d in dimensions), "an index is a sum of more than two axes"
    limit = 1 << 16 // max(1, len(found.spatial))
    corners = [c for s in found.spatial for c in (s.lower, s.upper)]
    yield all(-limit // 2 <= c < limit // 2 for c in corners), f"windows reach {limit // 2} elements or more"
    yield all(s.reach < limit for s in found.spatial), f"windows of {limit} elements or more"
    yield all(s.step <= STEP for s in found.spatial), f"steps of more than {STEP} elements"


def _spatial(d: Dimension, strides: Mapping[str, int], sizes: Mapping[str, int]) -> Spatial:
    """A dimension of pixels, as windows of the array that holds what all of them read (zeros around it are in it)."""
    row, step, _ = d.terms[0]
    tap, dilation = d.terms[-1][:2] if len(d.terms) > 1 else ("", 1)
    taps = sizes[tap] if tap else 1
    stride = strides[tap] // dilation if taps > 1 else strides[row] // step
    reach = dilation * (taps - 1)
    return Spatial(row, (sizes[row] - 1) * step + reach + 1, stride, step, 0, -reach, tap, dilation)


def _around(s: Spatial, pad: int, length: int) -> Spatial:
    """The same dimension of an array that has no zeros around it in memory: windows reach beyond it."""
    return s._replace(length=length, lower=-pad, upper=pad + s.upper)


def _of_taps(
    cut: Cut, side: Side, place: Place, pixels: Pixels, sizes: Mapping[str, int], views: Mapping[str, View]
) -> Place | None:
    """A right operand beside pixels, whose terms are taps and channels, a dimension for each; None if it is none."""
    taps = [a for a, _ in pixels.taps]
    channel = next(a for a in cut.along if a not in taps)
    if not _different(cut, side, place.dtype) and (found := _taps_in_place(side, place, channel, taps, sizes, views)):
        return found
    if not place.why or cut.along[-1] != channel:
        return None
    steps = [prod(sizes[b] for b in cut.along[k + 1 :]) for k, _ in enumerate(taps)]
    return None if any(2 * s % 16 for s in steps) else replace(place, taps=tuple(steps))


def _taps_in_place(
    side: Side, place: Place, channel: str, taps: Sequence[str], sizes: Mapping[str, int], views: Mapping[str, View]
) -> Place | None:
    leaf, column = side.node.attr, side.axes[-1]
    strides = dict(zip(leaf.axes, views[leaf.name].strides, strict=True))
    flat = strides[channel] != 1 or sizes[channel] == 1 and strides[column] == 1
    inner, outer = (column, channel) if flat else (channel, column)
    steps = {a: 2 * strides[a] for a in (outer, *taps) if sizes[a] > 1}
    if strides[inner] != 1 and sizes[inner] > 1 or _unaligned(leaf.name, steps, views[leaf.name].align):
        return None
    own = strides[column], strides[channel]
    return Place(leaf.name, place.dtype, own, flat, taps=tuple(strides[a] for a in taps))
