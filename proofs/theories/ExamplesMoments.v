(** * Instances as a printer prints them: moments, two anchors, normalisation followed by a matrix product, top-k. *)

From Coq Require Import List Permutation Reals Lra.
From Redalg Require Import Fold Sums Transport Average Invariant TopK Tactics.
Import ListNotations.
Open Scope R_scope.

(** ** Variance: sum[j]((x_j - μ)²), slots held as averages about a free anchor, residual kept *)

Module Variance.
  (** Slots N, X1, X2 with their moves: [Invariant.moments], [Invariant.moment_rows]. *)
  Definition T (A A' : R) : (moment -> R) -> moment -> R := Ts moment_rows (A' - A).
  Definition terms : list ((R -> R -> R) * moment) :=
    [(fun _ _ => 1, X2); (fun mu A => 2 * (A - mu), X1); (fun mu A => (A - mu) ^ 2, N)].

  Lemma O1_var : forall x mu A : R, (x - mu) ^ 2 = 1 * (x - A) ^ 2 + 2 * (A - mu) * (x - A) + (A - mu) ^ 2 * 1.
  Proof. redalg_solve. Qed.
  Lemma O2_x2 : forall x A A' : R, (x - A') ^ 2 = (A' - A) ^ 2 * 1 + -2 * (A' - A) * (x - A) + 1 * (x - A) ^ 2.
  Proof. redalg_solve. Qed.
  Lemma O4_mean : forall a b c k l m : R, 0 < k -> 0 < l -> 0 < m ->
    a + (b - a) * (l / (k + l)) + (c - (a + (b - a) * (l / (k + l)))) * (m / (k + l + m))
    = a + (b + (c - b) * (m / (l + m)) - a) * ((l + m) / (k + (l + m))).
  Proof. redalg_solve. Qed.

  Theorem variance : forall first meet t mu xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map (average_of_terms terms mu) (run (avg_lift moments first) (avg_combine T meet) t)
    = Some (lsum (fun x => (x - mu) ^ 2) xs).
  Proof.
    intros. apply average_value with (F := fun x mu => (x - mu) ^ 2) (holds := fun _ _ => True)
      (moves := fun _ _ => True /\ True) (sound := fun _ => True); auto.
    - apply moments_moving.
    - intros. apply Ts_scales.
    - redalg_slots.
  Qed.

  (** finalize: with averages r of x - A and s of (x - A)², the variance about the mean is s - r², at any anchor. *)
  Theorem finalize_var : forall first meet t xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map (fun s => avg s X2 - avg s X1 ^ 2) (run (avg_lift moments first) (avg_combine T meet) t)
    = Some (lsum (fun x => (x - rmean xs) ^ 2) xs / INR (length xs)).
  Proof.
    intros first meet t xs P Hn.
    assert (R := average_bracketing moments_moving (fun A A' => Ts_scales moment_rows (A' - A)) first meet (fun _ => True)).
    specialize (R ltac:(auto) ltac:(auto) t).
    destruct (run _ _ t) as [[n [A u]]|]; simpl in R; [| rewrite R in P; apply Permutation_nil in P; congruence].
    destruct R as [Hn' (_ & _ & _ & Hu)]. unfold avg, at_anchor in *. cbn [option_map fst snd] in *. f_equal.
    rewrite !Hu. cbn [moments].
    rewrite !(lsum_permutation _ P), (Permutation_length P). pose proof (INR_length_pos Hn) as Hl.
    assert (W : lsum (fun _ : R => 1) xs = INR (length xs)) by (rewrite lsum_const; ring).
    assert (V := residual_moment (fun _ : R => 1) (fun x : R => x) A xs). cbv beta in V. rewrite W in V.
    specialize (V ltac:(lra)).
    rewrite (lsum_ext (fun e => 1 * e) (fun x => x)) in V by (intros; ring). fold (rmean xs) in V.
    rewrite (lsum_ext (fun x => (x - rmean xs) ^ 2) (fun e => 1 * (e - rmean xs) ^ 2)), V by (intros; ring).
    rewrite (lsum_ext (fun x => (x - A) ^ 2) (fun e => 1 * (e - A) ^ 2)) by (intros; ring).
    rewrite (lsum_ext (fun x => x - A) (fun e => 1 * (e - A))) by (intros; ring). field. lra.
  Qed.

  (** The lean form: Chan's merge (proved in Invariant.v), so Welford's update element by element. *)
  Theorem chan : forall t xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map snd (run chan_lift chan_combine t) = Some (lsum (fun x => (x - rmean xs) ^ 2) xs).
  Proof. intros t xs P Hn. now rewrite (chan_run t P Hn). Qed.
End Variance.

(** ** Third central moment: sum[j]((x_j - μ)³), rank 4 *)

Module ThirdMoment.
  Inductive slot := N | X1 | X2 | X3.
  Definition phi (x A : R) (i : slot) : R :=
    match i with N => 1 | X1 => x - A | X2 => (x - A) ^ 2 | X3 => (x - A) ^ 3 end.
  Definition rows (i : slot) : list ((R -> R) * slot) :=
    match i with
    | N => [(fun _ => 1, N)]
    | X1 => [(fun _ => 1, X1); (fun h => - h, N)]
    | X2 => [(fun _ => 1, X2); (fun h => -2 * h, X1); (fun h => h ^ 2, N)]
    | X3 => [(fun _ => 1, X3); (fun h => -3 * h, X2); (fun h => 3 * h ^ 2, X1); (fun h => - h ^ 3, N)]
    end.
  Definition terms : list ((R -> R -> R) * slot) :=
    [(fun _ _ => 1, X3); (fun mu A => 3 * (A - mu), X2); (fun mu A => 3 * (A - mu) ^ 2, X1); (fun mu A => (A - mu) ^ 3, N)].

  Theorem third_moment : forall first meet t mu xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map (value terms mu) (form phi (fun A A' => Ts rows (A' - A)) first meet t)
    = Some (lsum (fun x => (x - mu) ^ 3) xs).
  Proof. intros. apply additive_value with (F := fun x mu => (x - mu) ^ 3); auto; redalg_slots. Qed.
End ThirdMoment.

(** ** Covariance: sum[j]((x_j - μ)(y_j - ν)), two anchors that move independently *)

Module Covariance.
  Inductive slot := N | X | Y | XY.
  Definition phi (p : R * R) (A : R * R) (i : slot) : R :=
    match i with
    | N => 1 | X => fst p - fst A | Y => snd p - snd A | XY => (fst p - fst A) * (snd p - snd A)
    end.
  Definition shift (A A' : R * R) : R * R := (fst A' - fst A, snd A' - snd A).
  Definition plus (h k : R * R) : R * R := (fst h + fst k, snd h + snd k).
  Definition rows (i : slot) : list ((R * R -> R) * slot) :=
    match i with
    | N => [(fun _ => 1, N)]
    | X => [(fun _ => 1, X); (fun h => - fst h, N)]
    | Y => [(fun _ => 1, Y); (fun h => - snd h, N)]
    | XY => [(fun _ => 1, XY); (fun h => - snd h, X); (fun h => - fst h, Y); (fun h => fst h * snd h, N)]
    end.
  Definition F (p : R * R) (d : R * R) : R := (fst p - fst d) * (snd p - snd d).
  Definition terms : list ((R * R -> R * R -> R) * slot) :=
    [ (fun _ _ => 1, XY); (fun d A => snd A - snd d, X); (fun d A => fst A - fst d, Y);
      (fun d A => (fst A - fst d) * (snd A - snd d), N) ].

  Theorem covariance : forall first meet t d xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map (value terms d) (form phi (fun A A' => Ts rows (shift A A')) first meet t) = Some (lsum (fun p => F p d) xs).
  Proof.
    intros. apply shift_value with (plus := plus) (zero := (0, 0)) (good := fun _ => True) (valid := fun _ => True); auto.
    - intros [a b] [c d'] [e f] _ _. unfold shift, plus. redalg_solve.
    - intros [a b] _. unfold shift. redalg_solve.
    - redalg_slots.
    - redalg_slots.
    - redalg_slots.
    - intros p A _ _. unfold F. redalg_slots.
  Qed.
End Covariance.

(** ** LayerNorm followed by a matrix product: y[e] = sum[j](W[j,e]·(g_j·(x_j - μ)/sqrt(v + eps) + b_j)), rank 2 and a constant *)

Module LayerNormGemm.
  Section Columns.
  Variable free : Type.
  Record element := { x : R; g : R; b : R; w : free -> R }.
  Inductive slot := XW (e : free) | W (e : free) | B (e : free).
  Definition phi (p : element) (A : R) (i : slot) : R :=
    match i with XW e => (x p - A) * g p * w p e | W e => g p * w p e | B e => b p * w p e end.
  Definition rows (i : slot) : list ((R -> R) * slot) :=
    match i with
    | XW e => [(fun _ => 1, XW e); (fun h => - h, W e)]
    | W e => [(fun _ => 1, W e)]
    | B e => [(fun _ => 1, B e)]
    end.
  (** D = (μ, v + eps), the latter positive. *)
  Definition F (e : free) (p : element) (d : R * R) : R := w p e * (g p * (x p - fst d) / sqrt (snd d) + b p).
  Definition terms (e : free) : list ((R * R -> R -> R) * slot) :=
    [(fun d A => / sqrt (snd d), XW e); (fun d A => (A - fst d) / sqrt (snd d), W e); (fun d A => 1, B e)].

  Lemma O1_y : forall x g b w mu v A : R, 0 < v ->
    w * (g * (x - mu) / sqrt v + b) = / sqrt v * ((x - A) * g * w) + (A - mu) / sqrt v * (g * w) + 1 * (b * w).
  Proof. redalg_solve. Qed.

  Theorem layer_norm_gemm : forall first meet t d e xs, Permutation (leaves t) xs -> xs <> [] -> 0 < snd d ->
    option_map (value (terms e) d) (form phi (fun A A' => Ts rows (A' - A)) first meet t) = Some (lsum (fun p => F e p d) xs).
  Proof.
    intros. apply additive_value; auto; try redalg_slots.
    intros p A _. unfold F. cbn. rewrite (O1_y (x p) (g p) (b p) (w p e) (fst d) (snd d) A) by assumption. ring.
  Qed.
  End Columns.
End LayerNormGemm.

(** ** Softmax followed by top-k: the raw logits are kept, the k of them are mapped in finalize *)

Module SoftmaxTopK.
  Lemma strict_softmax : forall m l : R, 0 < l -> forall u v, u < v -> exp (u - m) / l < exp (v - m) / l.
  Proof. redalg_mono. Qed.

  Theorem softmax_topk : forall k t xs m l, Permutation (leaves t) xs -> xs <> [] -> 0 < l ->
    option_map (map (on_value (fun u => exp (u - m) / l)))
      (run (fun x : entry => topk k (fun y => y) [x]) (topk_combine k) t)
    = Some (topk k (fun y => on_value (fun u => exp (u - m) / l) y) xs).
  Proof.
    intros k t xs m l P Hn Hl. rewrite topk_bracketing.
    - cbn. f_equal. rewrite (topk_permutation k (fun y => y) P). symmetry.
      apply (topk_strict (fun u => exp (u - m) / l)). now apply strict_softmax.
    - intros E0. rewrite E0 in P. apply Permutation_nil in P. congruence.
  Qed.
End SoftmaxTopK.
