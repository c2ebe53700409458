"""Specs whose scores are sums of contractions, and whose columns are too many for one warpgroup."""

LATENT = """tensors Q[b,h,c], Qr[b,h,r], C[b,j,c], Kr[b,j,r], scale;
s = (sum[c](Q[b,h,c] * C[b,j,c]) + sum[r](Qr[b,h,r] * Kr[b,j,r])) * scale;
p = exp(s - max[j](s));
O = sum[j](p * C[b,j,c]) / sum[j](p);
return O"""
PLAIN = """tensors Q[b,h,d], K[b,j,d], V[b,j,e], scale;
s = sum[d](Q[b,h,d] * K[b,j,d]) * scale;
p = exp(s - max[j](s));
O = sum[j](p * V[b,j,e]) / sum[j](p);
lse = max[j](s) + log(sum[j](p));
return O, lse"""
ROPE = """tensors Q[b,h,d], Qr[b,h,r], K[b,j,d], Kr[b,j,r], V[b,j,e], scale;
s = where(index[j] <= index[h], (sum[d](Q[b,h,d] * K[b,j,d]) + sum[r](Qr[b,h,r] * Kr[b,j,r])) * scale, -oo);
p = exp(s - max[j](s));
O = sum[j](p * V[b,j,e]) / sum[j](p);
return O"""
BIASED = """tensors Q[b,h,d], Qr[b,h,r], K[b,j,d], Kr[b,j,r], V[b,j,e], bias[b,j];
s = sum[d](Q[b,h,d] * K[b,j,d]) + bias[b,j] + sum[r](Qr[b,h,r] * Kr[b,j,r]);
p = exp(s - max[j](s));
O = sum[j](p * V[b,j,e]) / sum[j](p);
return O"""
WINDOW = """tensors Q[b,h,c], C[b,j,c], scale, w integer;
s = where(index[j] <= index[h] and index[h] - index[j] < w, sum[c](Q[b,h,c] * C[b,j,c]) * scale, -oo);
p = exp(s - max[j](s));
O = sum[j](p * C[b,j,c]) / sum[j](p);
return O"""
