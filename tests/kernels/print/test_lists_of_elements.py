"""A list of every element of a stream is refused for what it is, wherever its entries lie."""

from __future__ import annotations

import pytest

import redalg as ra
from redalg.errors import RedalgError

LIST = "topk[j:{k}:t](x[i,j])"


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    "body", ["w[t]*{l}.values", "sum[t](w[t]*{l}.values)", "where({l}.indices == 1, w[t], 0)", "max[t]({l}.values)"]
)
@pytest.mark.parametrize("over", ["sum", "max"])
def test_no_kernel_holds_them(over: str, body: str, k: int) -> None:
    form = ra.derive_incremental(ra.parse(f"return y = {over}[i]({body.format(l=LIST.format(k=k))})"), axis="i")
    with pytest.raises(RedalgError, match="a topk inside an element"):
        form.compile("cpu")(**{d.name: [[0.5] * 4] * 2 if d.name == "x" else [1.0] * k for d in form.spec.tensors})
