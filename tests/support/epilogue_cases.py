"""Products with what their epilogues read beside the sums, that tests share."""

from __future__ import annotations

P = "sum[k](X[m,k]*W[l,k])"
EPILOGUES = {
    "bias": f"return Y = {P} + c[l]",
    "gelu": f"return Y = gelu({P}*g[l] + c[l])",
    "residual": f"return Y = {P} + R[m,l]",
    "both": f"return Y = relu({P} + c[l]) + R[m,l]",
    "gated by rows": f"return Y = {P}*sigmoid(R[m,l]) + R[m,l]*s[m]",
    "two of a kind": f"return Y = {P}*Q[m,l] + R[m,l]",
    "two results": f"return Y = {P} + c[l] + R[m,l], Z = relu({P} + c[l])",
    "batched": "return Y = sum[k](X[b,m,k]*W[b,l,k]) + c[b,l] + R[b,m,l]",
    "an index": f"return Y = where(index[l] < 7, {P} + c[l], R[m,l])",
}
