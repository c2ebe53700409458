"""A form as a scikit-learn estimator: statistics of samples by `fit` and `partial_fit`, and maps of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from redalg.adapters.columns import Columns, held_by_floats, library
from redalg.errors import RedalgError
from redalg.form import Form

base: Any = library("sklearn.base", "form.estimator", "redalg[sklearn]")
checked: Any = library("sklearn.utils.validation", "form.estimator", "redalg[sklearn]")

WHERE = "form.estimator"


class FormEstimator(base.TransformerMixin, base.BaseEstimator):
    """The outputs of a form over samples, as ``<output>_``; `columns` says where its tensors come from.

    The one tensor with the axes (samples, features) is X; one of samples alone is a column of X by number or name
    (``columns={"w": 2}``; a slice or a list of them for a tensor of two axes), or y where it is called y. Tensors
    without the streamed axis are given there, too. `partial_fit` goes on where it was; `transform` gives the output
    that keeps the streamed axis (standardised samples, say). Forms of several passes need `fit`.

    Raises: RedalgError for tensors without a column; scikit-learn's own errors for X.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("u = mean[i](x[i,f]); return u = u, z = x[i,f] - u"))
    >>> FormEstimator(form).fit([[1.0, 4.0], [3.0, 4.0]]).transform([[1.0, 5.0]]).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, form: Form, columns: Mapping[str, Any] | None = None) -> None:
        self.form, self.columns = form, columns

    def fit(self, X: Any, y: Any = None) -> Self:
        """The statistics of X alone."""
        self._forget()
        chunk = self._chunk(X, y, reset=True)
        columns = self._columns()
        self._acc = columns.accumulated(lambda: [chunk])
        return self._fitted()

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """The statistics of X beside those of what came before."""
        columns = self._columns()
        if columns.layout.passes > 1:
            why = f"the form reads the samples {columns.layout.passes} times"
            raise RedalgError("partial_fit", WHERE, why, "fit(X) with all samples")
        first = not hasattr(self, "_acc")
        chunk = self._chunk(X, y, reset=first)
        if first:
            self._acc = columns.accumulated(list)
        self._acc.update(**chunk)
        return self._fitted()

    def transform(self, X: Any) -> Any:
        """The output that keeps the axis of samples; a dict of several."""
        checked.check_is_fitted(self, "n_samples_seen_")
        if not self._columns().layout.keeps:
            why = "no output keeps the axis of samples"
            raise RedalgError("transform", WHERE, why, "read the statistics: estimator.<output>_")
        found = self._acc.apply(**self._chunk(X, None, reset=False))
        return next(iter(found.values())) if isinstance(found, dict) and len(found) == 1 else found

    # --- inside ------------------------------------------------------------------------------------------------------

    def _columns(self) -> Columns:
        """Raises: RedalgError for outputs whose attributes are scikit-learn's."""
        given = dict(self.columns or {})
        taken = next((n for n in self.form.spec.outputs if f"{n}_" in _OWN), None)
        if taken is not None:
            why = f"estimators have an attribute {taken}_ of another meaning"
            raise RedalgError(f"an output named {taken!r}", WHERE, why, "give the output another name")
        return Columns(self.form, {n: c for n, c in given.items() if not isinstance(c, slice)}, WHERE)

    def _forget(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.endswith("__")] + ["_acc"]:
            self.__dict__.pop(name, None)

    def _chunk(self, X: Any, y: Any, reset: bool) -> dict[str, Any]:
        frame, names = X, list(getattr(X, "columns", ()))
        X = checked.validate_data(self, frame, reset=reset, dtype="numeric")
        for name in names if X.dtype.kind == "f" else ():
            held_by_floats("X", np.asarray(frame[name]), X.dtype, WHERE)
        columns, given = self._columns(), dict(self.columns or {})
        found = {}
        for name, d in columns.decls.items():
            if d.array:
                continue
            place = given.get(name)
            if place is None:
                found[name] = self._own(name, d, columns, X, y)
                continue
            part = X[:, _places(d, place, names, X.shape[1])]
            found[name] = columns.oriented(name, part) if part.ndim == 2 else part
        return found

    def _own(self, name: str, d: Any, columns: Columns, X: Any, y: Any) -> Any:
        if len(d.axes) == 2:
            return columns.oriented(name, X)
        if name == "y" and y is not None:
            return checked.column_or_1d(y)
        if X.shape[1] == 1:
            return X[:, 0]
        why = f"{d} is one number for a sample, and X has {X.shape[1]} columns"
        raise RedalgError(f"an estimator without a column for {name}", WHERE, why, f"form.estimator({name}=0)")

    def _fitted(self) -> Self:
        self.n_samples_seen_ = self._acc.count
        if len(self._columns().layout.keeps) < len(self.form.spec.outputs):
            for name, value in self._columns().named(self._acc.result()).items():
                setattr(self, f"{name}_", np.asarray(value)[()])
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_samples_seen_")


_OWN = frozenset({"n_samples_seen_", "n_features_in_", "feature_names_in_"})


def _places(d: Any, given: Any, names: list[Any], width: int) -> Any:
    """Columns by number, name or slice as NumPy takes them. Raises: RedalgError for what X does not have."""
    if isinstance(given, slice):
        return given
    if isinstance(given, list):
        return [_place(d, c, names, width) for c in given]
    return _place(d, given, names, width)


def _place(d: Any, given: Any, names: list[Any], width: int) -> int:
    number = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if number and -width <= given < width:
        return int(given)
    if isinstance(given, str) and names.count(given) == 1:
        return names.index(given)
    told = f"X has {width} columns" + (f": {', '.join(map(str, names[:12]))}" if names else " without names")
    raise RedalgError(f"{d.name}={given!r}", WHERE, told, f"form.estimator({d.name}=0), a name or a slice")


def estimator(form: Form, columns: Mapping[str, Any]) -> FormEstimator:
    """The estimator of a form."""
    return FormEstimator(form, dict(columns) or None)


__all__ = ["FormEstimator", "estimator"]
