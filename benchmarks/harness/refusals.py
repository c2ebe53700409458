"""Specs that have no one-pass form: what is timed, and tested, as refusals. Name -> text of the spec language."""

REFUSED: dict[str, str] = {
    "mean absolute deviation": "m = mean[j](x[j]); return y = sum[j](abs(x[j] - m))",
    "relu of deviations": "m = mean[j](x[j]); return y = sum[j](relu(x[j] - m))",
    "tanh below the maximum": "m = max[j](x[j]); return y = sum[j](tanh(x[j] - m))",
    "count above the mean": "m = mean[j](x[j]); return y = sum[j](where(x[j] > m, 1, 0))",
    "moment generating function at the mean": "m = mean[j](x[j]); return y = sum[j](exp(x[j]*m))",
    "Gauss kernel at the mean": "m = mean[j](x[j]); return y = sum[j](exp(-(x[j] - m)**2))",
    "Cauchy kernel at the mean": "m = mean[j](x[j]); return y = sum[j](1/(1 + (x[j] - m)**2))",
    "product of shifted elements": "m = mean[j](x[j]); return y = prod[j](x[j] + m)",
    "softplus of deviations": "m = mean[j](x[j]); return y = sum[j](log(1 + exp(x[j] - m)))",
    "Huber loss about the mean": (
        "m = mean[j](x[j]); d = x[j] - m; return y = sum[j](where(abs(d) < 1, d**2/2, abs(d) - 1/2))"
    ),
    "regression by absolute residuals": (
        "mx = mean[j](x[j]); my = mean[j](y[j]); b = sum[j]((x[j] - mx)*(y[j] - my))/sum[j]((x[j] - mx)**2); "
        "return y = sum[j](abs(y[j] - my - b*(x[j] - mx)))"
    ),
    "softmax of z-scores": (
        "m = mean[j](x[j]); s = sqrt(mean[j]((x[j] - m)**2)); z = (x[j] - m)/s; M = max[j](z); "
        "return y = sum[j](exp(z - M)*y[j])/sum[j](exp(z - M))"
    ),
    "entropy of a tempered softmax": (
        "m = max[j](x[j]); t = sum[j](exp(x[j] - m)); p = exp((x[j] - m)/t); return y = sum[j](p*y[j])/sum[j](p)"
    ),
    "rounded quantisation": ("a = max[j](abs(x[j])); return y = sum[j](cast(x[j]*448/a, float8_e4m3fn)*y[j])"),
    "first element above the mean": "m = mean[j](x[j]); return y = argmax[j](minimum(x[j] - m, 1))",
}
