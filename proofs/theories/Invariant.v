(** * Invariants, the lean form and the residual form (theory, section 3.2).

    - [every_invariant]: what holds for one element and survives [combine] holds for every stream; [every_relation]: in
      particular a linear relation Σ c_k(A)·u_k = 0 between slots;
    - [lean_run]: slots that an invariant determines can be dropped: the lean form gives the same results;
    - [chan_run]: Chan's merge (and Welford's update, its one-element case) is the lean form of the second moment;
    - [residual_mean], [residual_moment]: kept, the residual ρ = Σ w(x - A) gives the mean and the moments about it at
      any anchor, without a subtraction of large numbers. *)

From Coq Require Import List Permutation Reals Lra FunctionalExtensionality.
From Redalg Require Import Fold Sums Transport.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

(** ** Invariants *)

Theorem every_invariant : forall E S (lift : E -> S) (combine : S -> S -> S) (Inv : S -> Prop),
  (forall x, Inv (lift x)) -> (forall a b, Inv a -> Inv b -> Inv (combine a b)) ->
  forall t s, run lift combine t = Some s -> Inv s.
Proof.
  intros E S lift combine Inv Hl Hc t s H.
  pose proof (every_bracketing lift combine (fun _ => Inv) Hl (fun _ _ a b _ _ => Hc a b) t) as R.
  rewrite H in R. apply R.
Qed.

(** A relation between slots; the policies may rely on it, as those of lean forms do. *)
Definition relation (An I : Type) (terms : list ((An -> R) * I)) (s : held An (I -> R)) : R :=
  lsum (fun c => fst c (fst s) * snd s (snd c)) terms.

Theorem every_relation : forall E An I (phi : E -> An -> I -> R) T first meet (terms : list ((An -> R) * I)) (sound : _ -> Prop),
  (forall x, sound (held_lift phi first x) /\ relation terms (held_lift phi first x) = 0) ->
  (forall a b, sound a -> sound b -> relation terms a = 0 -> relation terms b = 0 ->
    sound (held_combine (@fplus I) T meet a b) /\ relation terms (held_combine (@fplus I) T meet a b) = 0) ->
  forall t s, form phi T first meet t = Some s -> relation terms s = 0.
Proof.
  intros E An I phi T first meet terms sound Hl Hc t s H.
  apply (every_invariant _ _ (fun s => sound s /\ relation terms s = 0)) in H; [tauto | auto |].
  intros a b [Sa Ra] [Sb Rb]. auto.
Qed.

(** ** Lean forms *)

Section Lean.
  Variables (E S L : Type) (lift : E -> S) (combine : S -> S -> S) (Inv : S -> Prop).
  Variables (lean_lift : E -> L) (lean_combine : L -> L -> L) (drop : S -> L) (restore : L -> S).
  Hypothesis Inv_lift : forall x, Inv (lift x).
  Hypothesis Inv_combine : forall a b, Inv a -> Inv b -> Inv (combine a b).
  Hypothesis restored : forall s, Inv s -> restore (drop s) = s.
  Hypothesis lean_lifts : forall x, lean_lift x = drop (lift x).
  Hypothesis lean_combines : forall a b, Inv (restore a) -> Inv (restore b) ->
    lean_combine a b = drop (combine (restore a) (restore b)).

  Theorem lean_run : forall t, run lean_lift lean_combine t = option_map drop (run lift combine t).
  Proof.
    unfold run. induction t as [|x|l IHl r IHr]; simpl; auto.
    - now rewrite lean_lifts.
    - rewrite IHl, IHr. clear IHl IHr.
      destruct (eval _ combine l) as [a|] eqn:Ea, (eval _ combine r) as [b|] eqn:Eb; simpl; auto.
      apply (every_invariant lift combine Inv Inv_lift Inv_combine) in Ea.
      apply (every_invariant lift combine Inv Inv_lift Inv_combine) in Eb.
      rewrite lean_combines by (now rewrite restored). now rewrite !restored.
  Qed.

  Theorem lean_restored : forall t, option_map restore (run lean_lift lean_combine t) = run lift combine t.
  Proof.
    intros t. rewrite lean_run. destruct (run lift combine t) eqn:H; simpl; auto.
    apply (every_invariant lift combine Inv Inv_lift Inv_combine) in H. now rewrite restored.
  Qed.
End Lean.

(** ** Moments about a free anchor *)

Inductive moment := N | X1 | X2.

Definition moments (x A : R) (i : moment) : R :=
  match i with N => 1 | X1 => x - A | X2 => (x - A) ^ 2 end.

Definition moment_rows (i : moment) : list ((R -> R) * moment) :=
  match i with
  | N => [(fun _ => 1, N)]
  | X1 => [(fun h => - h, N); (fun _ => 1, X1)]
  | X2 => [(fun h => h ^ 2, N); (fun h => -2 * h, X1); (fun _ => 1, X2)]
  end.

Lemma moments_moving :
  moving (@fplus moment) moments (fun A A' => Ts moment_rows (A' - A)) (fun _ _ => True) (fun _ _ => True /\ True).
Proof.
  apply shift_moving with (plus := Rplus) (zero := 0) (good := fun _ => True) (valid := fun _ => True); auto.
  - intros. ring.
  - intros. ring.
  - intros x A A' i _. destruct i; cbn; ring.
  - intros h k u i _ _. destruct i; cbn; ring.
  - intros u i. destruct i; cbn; ring.
Qed.

(** The policy that leaves no residual: meet at the mean of both. *)
Definition mean_of (a b : held R (moment -> R)) : R :=
  (snd a N * fst a + snd a X1 + (snd b N * fst b + snd b X1)) / (snd a N + snd b N).

Definition centred_form : tree R -> option (held R (moment -> R)) :=
  form moments (fun A A' => Ts moment_rows (A' - A)) (fun x => x) mean_of.

Definition centred (s : held R (moment -> R)) : Prop := snd s X1 = 0 /\ 0 < snd s N.

Lemma centred_every : forall t s, centred_form t = Some s -> centred s.
Proof.
  apply every_invariant; unfold centred.
  - intros x. cbn. lra.
  - intros [A u] [B v] [H1 H2] [H3 H4]. cbn in *. unfold fplus, Ts, mean_of. cbn. rewrite H1, H3. split; [field |]; lra.
Qed.

(** *** Chan's merge *)

Definition chan_lift (x : R) : R * R * R := (1, x, 0).
Definition chan_combine (a b : R * R * R) : R * R * R :=
  let '(na, ma, Ma) := a in
  let '(nb, mb, Mb) := b in
  let d := mb - ma in
  (na + nb, ma + d * nb / (na + nb), Ma + Mb + d ^ 2 * (na * nb / (na + nb))).

(** Welford's update. *)
Lemma chan_welford : forall n m M x, 0 < n ->
  chan_combine (n, m, M) (chan_lift x) = (n + 1, m + (x - m) / (n + 1), M + (x - m) * (x - (m + (x - m) / (n + 1)))).
Proof. intros. unfold chan_combine, chan_lift. f_equal; [f_equal |]; field; lra. Qed.

Definition chan_drop (s : held R (moment -> R)) : R * R * R := (snd s N, fst s, snd s X2).
Definition chan_restore (l : R * R * R) : held R (moment -> R) :=
  let '(n, m, M) := l in (m, fun i => match i with N => n | X1 => 0 | X2 => M end).

Lemma chan_is_lean : forall t, run chan_lift chan_combine t = option_map chan_drop (centred_form t).
Proof.
  apply lean_run with (Inv := centred) (restore := chan_restore).
  - intros x. unfold centred. cbn. lra.
  - intros [A u] [B v] [H1 H2] [H3 H4]. unfold centred. cbn in *. unfold fplus, Ts, mean_of. cbn.
    rewrite H1, H3. split; [field |]; lra.
  - intros [A u] [H1 H2]. cbn in *. f_equal. apply functional_extensionality. intros []; auto.
  - intros x. cbn. unfold chan_lift, chan_drop. cbn. f_equal. ring.
  - intros [[na ma] Ma] [[nb mb] Mb] [_ H1] [_ H2]. cbn in *. unfold chan_drop, held_combine, fplus, Ts, mean_of. cbn.
    f_equal; [f_equal |]; field; lra.
Qed.

Definition rmean (xs : list R) : R := lsum (fun x => x) xs / INR (length xs).

Lemma centred_is_mean : forall xs A, xs <> [] -> lsum (fun x => x - A) xs = 0 -> A = rmean xs.
Proof.
  intros xs A Hn H. rewrite lsum_minus, lsum_const in H. pose proof (INR_length_pos Hn). unfold rmean.
  apply (Rmult_eq_reg_l (INR (length xs))); [| lra]. field_simplify; lra.
Qed.

(** The lean form, for every tree and every order: count, mean and Σ(x - mean)². *)
Theorem chan_run : forall t xs, Permutation (leaves t) xs -> xs <> [] ->
  run chan_lift chan_combine t = Some (INR (length xs), rmean xs, lsum (fun x => (x - rmean xs) ^ 2) xs).
Proof.
  intros t xs P Hn. rewrite chan_is_lean.
  assert (Ht : leaves t <> []) by (intros E0; rewrite E0 in P; apply Permutation_nil in P; congruence).
  assert (Hf : forall x : R, True /\ True) by auto.
  destruct (form_nonempty moments_moving (fun x => x) mean_of (fun _ => True) Hf (fun a b _ _ => conj (conj I I) (conj (conj I I) I)) t Ht)
    as [[A u] Hs].
  pose proof (transport_slots moments_moving (fun x => x) mean_of (fun _ => True) Hf
    (fun a b _ _ => conj (conj I I) (conj (conj I I) I)) t Hs) as [Hu _].
  change (form _ _ _ _ t) with (centred_form t) in Hs. rewrite Hs. cbn. unfold chan_drop. cbn.
  apply centred_every in Hs. destruct Hs as [H1 _]. cbn in H1. rewrite Hu in H1. cbn in H1.
  rewrite !Hu. cbn. rewrite (lsum_permutation _ P) in H1. rewrite !(lsum_permutation _ P).
  apply centred_is_mean in H1; auto. subst A. rewrite lsum_const. do 3 f_equal. ring.
Qed.

(** ** The residual form: any anchor, weights w *)

Section Residual.
  Variables (E : Type) (w x : E -> R) (A : R) (xs : list E).
  Let W := lsum w xs.
  Let rho := lsum (fun e => w e * (x e - A)) xs.
  Let S2 := lsum (fun e => w e * (x e - A) ^ 2) xs.
  Let mu := lsum (fun e => w e * x e) xs / W.
  Hypothesis weight : W <> 0.

  Theorem residual_mean : A + rho / W = mu.
  Proof.
    unfold mu, rho. rewrite (lsum_ext _ (fun e => w e * x e - A * w e)) by (intros; ring).
    rewrite lsum_minus, lsum_scal. fold W. now field.
  Qed.

  Theorem residual_distance : mu - A = rho / W.
  Proof. rewrite <- residual_mean. ring. Qed.

  Theorem residual_moment : lsum (fun e => w e * (x e - mu) ^ 2) xs = S2 - rho ^ 2 / W.
  Proof.
    rewrite (lsum_ext _ (fun e => (w e * (x e - A) ^ 2 - 2 * (rho / W) * (w e * (x e - A))) + (rho / W) ^ 2 * w e))
      by (intros; replace mu with (A + rho / W) by apply residual_mean; ring).
    rewrite lsum_plus, lsum_minus, !lsum_scal. fold W rho S2. now field.
  Qed.
End Residual.
