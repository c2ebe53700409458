(** * Instances as a printer prints them: exponentials, order reductions, rounding. (Moments: ExamplesMoments.v.)

    Each instance has its slots, its elements [phi], its moves [rows], one lemma per obligation, and a theorem: for every
    tree [t] over the stream, in any order of [xs], the outputs are those of the definition. *)

From Coq Require Import List Permutation Reals Lra.
From Redalg Require Import Fold Sums Transport Order TopK Tactics.
Import ListNotations.
Open Scope R_scope.

(** ** Softmax denominator: l = sum[j](exp(x_j - m)), m = max[j](x_j) *)

Module SoftmaxDenominator.
  Inductive slot := L.
  Definition phi (x A : R) (i : slot) : R := match i with L => exp (x - A) end.
  Definition rows (i : slot) : list ((R -> R) * slot) := match i with L => [(fun h => exp (- h), L)] end.
  Definition terms : list ((R -> R -> R) * slot) := [(fun m A => exp (A - m), L)].

  Lemma O1_l : forall x m A : R, exp (x - m) = exp (A - m) * exp (x - A).
  Proof. redalg_solve. Qed.
  Lemma O2_l : forall x A A' : R, exp (x - A') = exp (- (A' - A)) * exp (x - A).
  Proof. redalg_solve. Qed.
  Lemma O3_l : forall h k u : R, exp (- k) * (exp (- h) * u) = exp (- (h + k)) * u.
  Proof. redalg_solve. Qed.
  Lemma O3_l_still : forall u : R, exp (- 0) * u = u.
  Proof. redalg_solve. Qed.
  Lemma O5_l : forall h u v : R, exp (- h) * (u + v) = exp (- h) * u + exp (- h) * v.
  Proof. redalg_solve. Qed.

  (** Any policy: first from data, meet from states. *)
  Theorem any_anchor : forall first meet t m xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map (value terms m) (form phi (fun A A' => Ts rows (A' - A)) first meet t)
    = Some (lsum (fun x => exp (x - m)) xs).
  Proof. intros. apply additive_value with (F := fun x m => exp (x - m)); auto; redalg_slots. Qed.

  (** The running maximum as the anchor: the state is (m, l), and no exponential exceeds 1. *)
  Definition online_lift (x : R) : R * R := (x, exp (x - x)).
  Definition online_combine (a b : R * R) : R * R :=
    let m := Rmax (fst a) (fst b) in (m, exp (fst a - m) * snd a + exp (fst b - m) * snd b).

  Theorem online : forall x xs t, Permutation (leaves t) (x :: xs) ->
    run online_lift online_combine t = Some (rmax x xs, lsum (fun y => exp (y - rmax x xs)) (x :: xs)).
  Proof.
    intros x xs t P.
    rewrite <- (run_map (held_lift phi (fun x => x)) online_lift
      (held_combine (@fplus slot) (fun A A' => Ts rows (A' - A)) (fun a b => Rmax (fst a) (fst b))) online_combine
      (fun s => (fst s, snd s L))).
    - assert (V := any_anchor (fun x => x) (fun a b => Rmax (fst a) (fst b)) t (rmax x xs) (x :: xs) P ltac:(discriminate)).
      unfold form in V. destruct (run _ _ t) as [[A u]|] eqn:H; [| discriminate].
      assert (M := H). apply extremum_anchor in M.
      rewrite (reduce_permutation Rmax Rmax_assoc' Rmax_comm (Permutation_map (fun x => x) P)), map_id, rmax_reduce in M.
      injection M as M. injection V as V. cbn in V |- *. f_equal. rewrite <- M in *.
      rewrite Rminus_diag_eq, exp_0 in V by reflexivity. f_equal. rewrite <- (Rmult_1_l (u L)), <- (Rplus_0_r (1 * u L)). exact V.
    - intros. unfold online_lift, held_lift. cbn. redalg_solve.
    - intros [A u] [B v]. unfold online_combine, held_combine, fplus, Ts. cbn. f_equal.
      generalize (Rmax A B). redalg_solve.
  Qed.
End SoftmaxDenominator.

(** ** Attention: O[e] = sum[j](p_j V[j,e]) / sum[j](p_j), p_j = exp(s_j - max s), s_j = scale·sum[d](Q[d] K[j,d]) *)

Module Attention.
  Section Query.
  Variables (dim free : Type) (ds : list dim) (Q : dim -> R) (scale : R).
  Definition element : Type := ((dim -> R) * (free -> R))%type.
  Definition score (x : element) : R := lsum (fun d => Q d * fst x d) ds * scale.
  Inductive slot := L | O (e : free).
  Definition phi (x : element) (A : R) (i : slot) : R :=
    match i with L => exp (score x - A) | O e => exp (score x - A) * snd x e end.
  Definition rows (i : slot) : list ((R -> R) * slot) :=
    match i with L => [(fun h => exp (- h), L)] | O e => [(fun h => exp (- h), O e)] end.

  Lemma O1_O : forall (q k : dim -> R) v m A, exp (lsum (fun d => q d * k d) ds * scale - m) * v
    = exp (A - m) * (exp (lsum (fun d => q d * k d) ds * scale - A) * v).
  Proof. redalg_solve. Qed.

  Lemma laws : moving (@fplus slot) phi (fun A A' => Ts rows (A' - A)) (fun _ _ => True) (fun _ _ => True /\ True).
  Proof.
    apply shift_moving with (plus := Rplus) (zero := 0) (good := fun _ => True) (valid := fun _ => True);
      auto; try (intros; ring); redalg_slots.
  Qed.

  Variables (first : element -> R) (meet : held R (slot -> R) -> held R (slot -> R) -> R).

  (** Finalize is O[e] = o / l, whatever the anchor is and whatever m is: exp(A - m) cancels. *)
  Theorem attention : forall t xs m e, Permutation (leaves t) xs -> xs <> [] ->
    option_map (fun s => snd s (O e) / snd s L) (form phi (fun A A' => Ts rows (A' - A)) first meet t)
    = Some (lsum (fun x => exp (score x - m) * snd x e) xs / lsum (fun x => exp (score x - m)) xs).
  Proof.
    intros t xs m e P N.
    destruct (form_state laws first meet (fun _ => True)) with (t := t) (xs := xs) as (A & u & -> & Hu & _); auto.
    cbn. f_equal. rewrite !Hu. cbn.
    rewrite (lsum_ext (fun x => exp (score x - m) * snd x e) (fun x => exp (A - m) * (exp (score x - A) * snd x e)))
      by redalg_solve.
    rewrite (lsum_ext (fun x => exp (score x - m)) (fun x => exp (A - m) * exp (score x - A))) by redalg_solve.
    rewrite !lsum_scal.
    assert (0 < lsum (fun x => exp (score x - A)) xs) by (apply lsum_pos; auto; intros; apply exp_pos).
    generalize dependent (lsum (fun x => exp (score x - A)) xs). redalg_solve.
  Qed.
  End Query.
End Attention.

(** ** logsumexp: y = ln(sum[j](exp(x_j - m))) + m, at any anchor *)

Module LogSumExp.
  Import SoftmaxDenominator.

  Lemma finalize_y : forall l A m : R, 0 < l -> ln (exp (A - m) * l) + m = ln l + A.
  Proof. redalg_solve. Qed.

  Theorem logsumexp : forall first meet t m xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map (fun s => ln (snd s L) + fst s) (form phi (fun A A' => Ts rows (A' - A)) first meet t)
    = Some (ln (lsum (fun x => exp (x - m)) xs) + m).
  Proof.
    intros first meet t m xs P N. assert (V := any_anchor first meet t m xs P N).
    destruct (form _ _ _ _ t) as [[A u]|]; [| discriminate]. injection V as V. cbn in V |- *. f_equal.
    rewrite <- V. rewrite Rplus_0_r. rewrite finalize_y; auto.
    assert (0 < lsum (fun x => exp (x - m)) xs) by (apply lsum_pos; auto; intros; apply exp_pos).
    pose proof (exp_pos (A - m)). apply Rmult_lt_reg_l with (exp (A - m)); lra.
  Qed.
End LogSumExp.

(** ** Entropy of softmax: H = sum[j](-p_j ln p_j), p_j = exp(x_j - m) / l with l > 0 *)

Module Entropy.
  Inductive slot := E0 | E1.
  Definition phi (x A : R) (i : slot) : R := match i with E0 => exp (x - A) | E1 => (x - A) * exp (x - A) end.
  Definition rows (i : slot) : list ((R -> R) * slot) :=
    match i with
    | E0 => [(fun h => exp (- h), E0)]
    | E1 => [(fun h => - h * exp (- h), E0); (fun h => exp (- h), E1)]
    end.
  Definition F (x : R) (d : R * R) : R := - (exp (x - fst d) / snd d * ln (exp (x - fst d) / snd d)).
  Definition terms : list ((R * R -> R -> R) * slot) :=
    [ (fun d A => - (exp (A - fst d) / snd d) * (A - fst d - ln (snd d)), E0);
      (fun d A => - (exp (A - fst d) / snd d), E1) ].

  Lemma O1_H : forall x A m l : R, 0 < l ->
    - (exp (x - m) / l * ln (exp (x - m) / l))
    = - (exp (A - m) / l) * (A - m - ln l) * exp (x - A) + - (exp (A - m) / l) * ((x - A) * exp (x - A)).
  Proof. redalg_solve. Qed.
  Lemma O2_E1 : forall x A A' : R, (x - A') * exp (x - A')
    = - (A' - A) * exp (- (A' - A)) * exp (x - A) + exp (- (A' - A)) * ((x - A) * exp (x - A)).
  Proof. redalg_solve. Qed.

  Theorem entropy : forall first meet t m l xs, Permutation (leaves t) xs -> xs <> [] -> 0 < l ->
    option_map (value terms (m, l)) (form phi (fun A A' => Ts rows (A' - A)) first meet t)
    = Some (lsum (fun x => F x (m, l)) xs).
  Proof.
    intros. apply additive_value; auto; try redalg_slots.
    intros. unfold F. cbn. rewrite (O1_H x A) by assumption. ring.
  Qed.
End Entropy.

(** ** Scores of which some are -oo (a mask): they weigh 0, and a piece with nothing else is not an empty piece *)

Module Masked.
  Import SoftmaxDenominator.
  Definition mphi : option R -> option R -> slot -> R := masked_phi phi.
  Definition mT : option R -> option R -> (slot -> R) -> slot -> R := masked_T (fun A A' => Ts rows (A' - A)).

  Lemma laws : moving (@fplus slot) mphi mT (masked_holds (fun _ _ => True)) (masked_moves (fun _ _ => True /\ True)).
  Proof.
    apply masked_moving.
    - apply shift_moving with (plus := Rplus) (zero := 0) (good := fun _ => True) (valid := fun _ => True);
        auto; try (intros; ring); redalg_slots.
    - intros. apply FunctionalExtensionality.functional_extensionality. intros []. cbn. unfold fzero. ring.
  Qed.

  (** The running maximum over what is not -oo. *)
  Definition top (a b : held (option R) (slot -> R)) : option R := adjoin Rmax (fst a) (fst b).

  Theorem masked : forall t m xs, Permutation (leaves t) xs -> xs <> [] ->
    option_map (fun s => match fst s with Some A => exp (A - m) * snd s L | None => 0 end)
      (form mphi mT (fun x => x) top t)
    = Some (lsum (fun x => match x with Some y => exp (y - m) | None => 0 end) xs).
  Proof.
    intros t m xs P N.
    destruct (form_state laws (fun x => x) top (fun _ => True)) with (t := t) (xs := xs) as (A & u & -> & Hu & Hh); auto.
    - intros [x|]; cbn; auto.
    - intros [[A|] u] [[B|] v]; cbn; auto.
    - cbn. f_equal. rewrite Hu, Forall_forall in *. destruct A as [A|].
      + rewrite <- lsum_scal. apply lsum_ext. intros [y|]; cbn; unfold fzero; redalg_solve.
      + rewrite (lsum_ext_in _ (fun _ => 0)); [now rewrite lsum_zero |].
        intros [y|] Hin; auto. now apply Hh in Hin.
  Qed.
End Masked.

(** ** argmax with ties, and of scores times a positive factor *)

Module Argmax.
  Definition operate (a b : R * R) : R * R := (Rmax (fst a) (fst b), if Rltb (fst a) (fst b) then snd b else snd a).

  Lemma operate_is_pick : forall a b, operate a b = pick a b.
  Proof. intros [a p] [b q]. unfold operate, pick, Rltb, Rmax. cbn. destruct Rlt_dec, Rle_dec; auto; f_equal; lra. Qed.

  Lemma O4_argmax : forall va ia vb ib vc ic : R,
    (Rmax (Rmax va vb) vc, if Rltb (Rmax va vb) vc then ic else if Rltb va vb then ib else ia)
    = (Rmax va (Rmax vb vc), if Rltb va (Rmax vb vc) then (if Rltb vb vc then ic else ib) else ia).
  Proof. redalg_solve. Qed.

  Lemma strict_scaled : forall h b : R, 0 < h -> forall u v, u < v -> u * h + b < v * h + b.
  Proof. redalg_mono. Qed.

  (** The stream is a list of (value, position): the result is its first largest element. *)
  Theorem argmax : forall t, represents (fun xs => first_largest (map (fun x => x) xs)) (leaves t) (run (fun x => x) operate t).
  Proof.
    intros t. rewrite <- (run_map (fun x : R * R => x) (fun x => x) (@pick R) operate (fun s => s)); auto.
    - assert (H := argmax_bracketing (fun x : R * R => x) t). now destruct (run _ (@pick R) t).
    - intros. symmetry. apply operate_is_pick.
  Qed.

  Theorem scaled : forall xs m h b, 0 < h -> first_largest xs m ->
    first_largest (map (fun y => (fst y * h + b, snd y)) xs) (fst m * h + b, snd m : R).
  Proof. intros. apply (argmax_strict (fun u => u * h + b)); auto. intros. now apply strict_scaled. Qed.
End Argmax.

(** ** SPLADE: max[j](log1p(relu(sum[d](H[j,d] E[d]) + b))): the maximum is taken before the activation *)

Module Splade.
  Lemma O1_monotone : forall b u v : R, u <= v -> log1p (relu (u + b)) <= log1p (relu (v + b)).
  Proof. redalg_mono. Qed.

  Theorem splade : forall (dim : Type) (ds : list dim) (e : dim -> R) (b : R) t x xs, Permutation (leaves t) (x :: xs) ->
    let z := fun h : dim -> R => lsum (fun d => h d * e d) ds in
    let g := fun u => log1p (relu (u + b)) in
    option_map g (run z Rmax t) = Some (rmax (g (z x)) (map (fun h => g (z h)) xs)).
  Proof.
    intros dim ds e b t x xs P z g. rewrite (max_bracketing z t P). cbn [map]. rewrite rmax_reduce. cbn. f_equal.
    symmetry. rewrite <- (map_map z g). apply rmax_monotone. apply O1_monotone.
  Qed.
End Splade.

(** ** Quantised product with absmax scaling: y = sum[j](cast(x_j / a) w_j), a = max[j](|x_j|)

    A cast is not separable. Under the *named* assumption that it commutes with rescaling the form is exact. *)

Module AbsmaxScaling.
  Definition cast_commutes (cast : R -> R) : Prop := forall x s, s <> 0 -> cast (x * s) = cast x * s.

  Section Cast.
  Variable cast : R -> R.
  Hypothesis assumed : cast_commutes cast.
  Inductive slot := Y.
  Definition phi (x : R * R) (A : R) (i : slot) : R := match i with Y => cast (fst x / A) * snd x end.
  Definition rows (i : slot) : list ((R -> R) * slot) := match i with Y => [(fun s => / s, Y)] end.
  Definition terms : list ((R -> R -> R) * slot) := [(fun a A => A / a, Y)].

  Lemma moved : forall x A A', A <> 0 -> A' <> 0 -> cast (x / A') = cast (x / A) * (A / A').
  Proof.
    intros x A A' H H'. rewrite <- assumed.
    - apply f_equal. redalg_solve.
    - redalg_solve.
  Qed.

  Lemma O3_y : forall r s u : R, r <> 0 -> s <> 0 -> / s * (/ r * u) = / (r * s) * u.
  Proof. redalg_solve. Qed.

  (** An anchor is never 0: an element 0 is held at 1. *)
  Definition first (x : R * R) : R := if Req_EM_T (fst x) 0 then 1 else Rabs (fst x).
  Definition meet (a b : held R (slot -> R)) : R := Rmax (Rabs (fst a)) (Rabs (fst b)).

  Theorem absmax_scaling : forall t a xs, Permutation (leaves t) xs -> xs <> [] -> a <> 0 ->
    option_map (value terms a) (form phi (fun A A' => Ts rows (A' / A)) first meet t)
    = Some (lsum (fun x => cast (fst x / a) * snd x) xs).
  Proof.
    intros t a xs P N Ha. apply multiplicative_value with (F := fun x a => cast (fst x / a) * snd x); auto.
    - intros x A A' [] H H'. cbn. rewrite (moved (fst x) A A') by assumption. redalg_solve.
    - redalg_slots.
    - redalg_slots.
    - intros x. unfold first. destruct Req_EM_T; [lra | now apply Rabs_no_R0].
    - intros [A u] [B v]. cbn. intros H _. unfold meet. cbn. apply Rabs_pos_lt in H. pose proof (Rmax_l (Rabs A) (Rabs B)). lra.
    - intros x A _ H. cbn. rewrite (moved (fst x) A a) by assumption. redalg_solve.
  Qed.
  End Cast.

  (** Without the assumption the moved slot differs: a cast that rounds up does not commute. *)
  Theorem not_without : exists cast, ~ cast_commutes cast.
  Proof.
    exists (fun x => if Rle_dec x 0 then 0 else 1). intros H. specialize (H 1 2). cbn in H.
    revert H. repeat destruct Rle_dec; lra.
  Qed.
End AbsmaxScaling.
