"""Text of generated CUDA kernels: lines with indentation, Python names, and ⊕ of single values by kind."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from redalg.kernels import twins, twins_math

RESERVED = frozenset(twins.TWINS | twins_math.TWINS) | frozenset(
    "np cuda f32 f64 i32 i64 u32 t r k v c j at row rows live lane warp warps piece base first last n n_b n_new length "
    "count high nearest m i owner rest step low stop share share_b arrived guess joined_lane values places value place "
    "keys key candidates INF NAN PI E THREADS ROWS TILE VECTOR VECTORS STEP SPAN BLOCK STRIP SPLIT CLUSTER LANES K "
    "NONE MISSING combine merge_lanes counter kernel job home span pieces block blocks run origin strip edge full "
    "unrolled largest free missing prefetch mask w d group begin "
    "maps tiles row_blocks batches section notes team room lane leader tile batch part rest across along wide low "
    "outer factor rate minus keep shift shown missed missed_rows swizzle fragment column s S P sums place stage "
    "left_words left_phase right_phase values_phase right_stage values_stage left_full left_free right_full right_free "
    "values_full values_free value_left value_right multiply weigh scores_done scores_first sums_done more_registers "
    "fewer_registers COLUMNS STAGES TEAMS LARGEST LOWEST LOG2E stage phase before chunk term whole index all_blocks "
    "bits drawn drawn_full drawn_free draw_phase word found more bound floor best taken mark other_value other_place "
    "multiply_more copies_ready copies_sent copies_there shared_start left_lane right_lane this_thread ahead "
    "own_tile own_full mine theirs within weights moved any_moved part piece place barrier none first_block first "
    "free full index value at across along wide rest row tile batch low last block SPAN sums_first "
    "side near BESIDE some n_some ROOM RING bring next_group groups between coming further turn slot spot "
    "group rank total_0 total_1 own above staged down over all_rows row_first column_first own_first load_left_tile "
    "load_right_tile GROUP CHUNKS FIRST_ROWS PARTS finished row_groups workers every turn prepare ready needed publish "
    "count_up count_wait count_last turn_wait uniform quotient opaque shared_base descriptor load_matrices "
    "copy_vector rows_stored nth barrier_init barrier_ready barrier_expect barrier_arrive arrive_pair barrier_wait "
    "turn_pass exp2_fast f32_i32 has_bit word_load word_store number_load number_store proxy_fence fused "
    "store_matrices tf32_word row_lane quad_lane values_lane turned turns "
    "min max abs range True False None float32 float64 int64 int32 boolean".split()
)
TAKEN = re.compile(
    r"t\d+|shift\d+|early\d+|edge\d+|(size|i|near|outer|load|store|copy|pack|pointer|shfl|round|stack|heap)_.*"
    r"|near\d+|.*_c\d+|.*_pitch\d+|.*_(room|first|way|tile|row|step|warps|parts|b|new|f32|f64|at|strip|u\d)|.*_s\d+"
)


WORDS = ("int32", "int64", "uint32", "uint64")


def operand_name(name: str) -> str:
    """The Python name of an array argument."""
    return name + "_" if keyword.iskeyword(name) or name in RESERVED or TAKEN.fullmatch(name) else name


def local(name: str) -> str:
    """The Python name of a part of a state or of a step."""
    text = re.sub(r"\W", "_", name.replace("'", "_prime"))
    return text + "_" if keyword.iskeyword(text) or text in RESERVED - {"n", "n_b", "n_new", "n_some"} else text


ALIASES = {"f32": "np.float32", "f64": "np.float64"} | {f"{t[0]}{t[-2:]}": f"np.{t}" for t in WORDS}


def definitions(used: Collection[str], constants: Mapping[str, object]) -> list[str]:
    """What stands above the functions of a module: short names of types, and constants, as far as they are used.

    >>> definitions({"INF", "TILE"}, {"INF": "f32(np.inf)", "TILE": 4, "ROWS": 1})
    ['f32 = np.float32', 'INF = f32(np.inf)', 'TILE = 4']
    """
    wanted = {name: str(value) for name, value in constants.items() if name in used}
    words = {*used} | {word for value in wanted.values() for word in re.findall(r"[^\W\d]\w*", value)}
    types = [name for name in ALIASES if name in words]
    lines = [f"{', '.join(types)} = {', '.join(ALIASES[t] for t in types)}"] if types else []
    return [*lines, *(f"{name} = {value}" for name, value in wanted.items())]


class Text:
    """Lines under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line if line else "" for line in lines]

    @contextmanager
    def block(self, head: str | None) -> Iterator[None]:
        """What is written inside is indented under `head`; without a head, nothing is."""
        if head is None:
            yield
            return
        self(head)
        self.depth += 1
        start = len(self.lines)
        try:
            yield
        finally:
            if len(self.lines) == start:
                self("pass")
            self.depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def conjunction(conditions: Iterable[str | None]) -> str | None:
    """``if a and b:``, or None if nothing is asked."""
    found = [c for c in conditions if c]
    return f"if {' and '.join(found)}:" if found else None


# --- ⊕ of single values ----------------------------------------------------------------------------------------------


def joined(kind: str, number: str, real: str, a: str, b: str) -> str:
    """The text of a ⊕ b for a kind with one part."""
    if kind == "sum":
        return f"{a} + {b}"
    if kind == "prod":
        return f"{a} * {b}"
    if kind == "keymax":
        return f"max({a}, {b})"
    if kind in ("any", "all"):
        return f"{a} {'|' if kind == 'any' else '&'} {b}"
    return f"{kind}({a}, {b})" if number == "i" else f"{kind}_nan_{real}({a}, {b})"


def better(kind: str, number: str, a: str, b: str, a_at: str, b_at: str) -> str:
    """Whether (b, b_at) comes before (a, a_at): larger (smaller), the first NaN, the lowest position among equals."""
    relation = ">" if kind in ("argmax", "topk") else "<"
    same = f"{b} == {a}"
    if number == "f":
        same = f"({same}) | ({b} != {b}) & ({a} != {a})"
        wins = f"({b} {relation} {a}) | ({b} != {b}) & ({a} == {a})"
    else:
        wins = f"({b} {relation} {a})"
    return f"{wins} | ({same}) & ({b_at} < {a_at})"


def follows(kind: str, number: str, best: str, item: str) -> str:
    """Whether an element that comes later in the stream replaces the best so far: ties keep the first."""
    relation = ">" if kind in ("argmax", "topk") else "<"
    wins = f"{item} {relation} {best}"
    return f"({wins}) | ({item} != {item}) & ({best} == {best})" if number == "f" else wins


def literal(value: float | int | bool, number: str, real: str) -> str:
    """A typed literal."""
    if number == "b":
        return str(bool(value))
    if number == "k":
        return "NONE"
    if number == "i":
        return f"i64({int(value)})"
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INF" if value > 0 else "-INF"
    return f"{real}({int(value) if value == int(value) else value!r})"
