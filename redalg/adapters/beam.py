"""A form as an Apache Beam `CombineFn`: elements are blocks, states travel as `Accumulator.to_bytes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from redalg.adapters.unordered import Unordered
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.streaming import Accumulator

try:
    import apache_beam as beam
    from apache_beam import coders

    _CombineFn, _Coder = beam.CombineFn, coders.Coder
except ImportError:
    beam, _CombineFn, _Coder = None, object, object

WHERE = "form.beam"


class FormCombineFn(_CombineFn):  # type: ignore[misc, valid-type]
    """Empty, update, merge and result of a form; an element is a block of arrays by tensor, or one row."""

    def __init__(self, parts: Unordered) -> None:
        super().__init__()
        self.parts = parts

    def create_accumulator(self) -> Accumulator:
        return self.parts.empty()

    def add_input(self, accumulator: Accumulator, element: Any) -> Accumulator:
        return self.parts.updated(accumulator, element)

    def merge_accumulators(self, accumulators: Iterable[Accumulator]) -> Accumulator:
        return self.parts.merged(accumulators)

    def extract_output(self, accumulator: Accumulator) -> Any:
        return accumulator.result()

    def get_accumulator_coder(self) -> Any:
        return StateCoder(self.parts.form)


class StateCoder(_Coder):  # type: ignore[misc, valid-type]
    """States as bytes that are checked when they are read."""

    def __init__(self, form: Form) -> None:
        self.form = form

    def encode(self, value: Accumulator) -> bytes:
        return value.to_bytes()

    def decode(self, encoded: bytes) -> Accumulator:
        return self.form.from_bytes(encoded)

    def is_deterministic(self) -> bool:
        return False


def combine_fn(form: Form, options: Mapping[str, Any], bound: Mapping[str, Any]) -> FormCombineFn:
    """Raises: RedalgError for forms that need an order or several passes, and without Beam."""
    if beam is None:
        raise RedalgError("a CombineFn", WHERE, "apache_beam cannot be imported", "pip install 'redalg[beam]'")
    return FormCombineFn(Unordered(form, WHERE, dict(bound), **options))


__all__ = ["FormCombineFn", "StateCoder", "combine_fn"]
