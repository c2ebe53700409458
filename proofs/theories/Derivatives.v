(** * The rules by which values are passed on: one lemma for each map, reduction and choice.

   The table [redalg.proofs.derivatives.rules] names these lemmas. [D f x l] says that [f] has the slope [l] at [x]. *)

From Coq Require Import List Reals Lra Psatz Lia Arith.
From Redalg Require Import Sums Signs.
Import ListNotations.
Open Scope R_scope.

Local Notation D := derivable_pt_lim.

Lemma D_value : forall f x l l', D f x l -> l = l' -> D f x l'.
Proof. intros; subst; assumption. Qed.

Lemma D_locally : forall f g x l e, 0 < e -> (forall z, Rabs (z - x) < e -> g z = f z) -> D f x l -> D g x l.
Proof.
  intros f g x l e He H Hf.
  apply derivable_pt_lim_locally_ext with (f := f) (a := x - e) (b := x + e); [lra | | assumption].
  intros z Hz. symmetry. apply H. apply Rabs_def1; lra.
Qed.

(** The chain rule: what stands below a map moves by [u'], and the map by its slope times that. *)
Lemma D_chain : forall f u x u' l, D u x u' -> D f (u x) l -> D (fun t => f (u t)) x (l * u').
Proof. intros. now apply (derivable_pt_lim_comp u f). Qed.

Lemma D_const : forall c x, D (fun _ => c) x 0.
Proof. intros. apply derivable_pt_lim_const. Qed.

Lemma D_id : forall x, D (fun t => t) x 1.
Proof. intros. apply derivable_pt_lim_id. Qed.

(** ** Sums, products, powers, quotients *)

Lemma d_add : forall u v x u' v', D u x u' -> D v x v' -> D (fun t => u t + v t) x (u' + v').
Proof. intros. now apply derivable_pt_lim_plus. Qed.

Lemma d_mul : forall u v x u' v', D u x u' -> D v x v' -> D (fun t => u t * v t) x (v x * u' + u x * v').
Proof.
  intros. eapply D_value; [now apply (derivable_pt_lim_mult u v x u' v') |]. ring.
Qed.

Lemma d_inverse : forall x, x <> 0 -> D (fun t => / t) x (- / (x * x)).
Proof.
  intros x H. eapply D_value.
  - apply derivable_pt_lim_ext with (f := fun t => (fct_cte 1 / id)%F t); [intros; unfold div_fct, fct_cte, id; lra |].
    apply derivable_pt_lim_div; [apply derivable_pt_lim_const | apply derivable_pt_lim_id | exact H].
  - unfold fct_cte, id, Rsqr. field. exact H.
Qed.

Lemma d_power_whole : forall x n, D (fun t => t ^ n) x (INR n * x ^ (pred n)).
Proof. intros. apply derivable_pt_lim_pow. Qed.

(** x^e for x > 0 and an exponent that moves, too. *)
Lemma d_power : forall u v x u' v', 0 < u x -> D u x u' -> D v x v' ->
  D (fun t => Rpower (u t) (v t)) x (v x * Rpower (u x) (v x - 1) * u' + Rpower (u x) (v x) * ln (u x) * v').
Proof.
  intros u v x u' v' H Hu Hv. unfold Rpower at 1.
  eapply D_value.
  - apply (D_chain exp (fun t => v t * ln (u t))); [| apply derivable_pt_lim_exp].
    apply d_mul; [exact Hv |]. apply (D_chain ln u); [exact Hu | now apply derivable_pt_lim_ln].
  - replace (v x - 1) with (v x + - (1)) by ring. rewrite Rpower_plus, Rpower_Ropp, Rpower_1 by assumption.
    unfold Rpower. field. lra.
Qed.

Lemma d_root : forall x, 0 < x -> D sqrt x (/ 2 * / sqrt x).
Proof.
  intros x H. eapply D_value; [now apply derivable_pt_lim_sqrt |]. field. apply Rgt_not_eq. now apply sqrt_lt_R0.
Qed.

(** ** Choices *)

(** What a condition selects, where it stays what it is. *)
Lemma d_where : forall (c : R -> bool) u v x u' v' e, 0 < e -> (forall z, Rabs (z - x) < e -> c z = c x) ->
  D u x u' -> D v x v' -> D (fun t => if c t then u t else v t) x (if c x then u' else v').
Proof.
  intros c u v x u' v' e He Hc Hu Hv.
  apply D_locally with (f := fun t => if c x then u t else v t) (e := e); [assumption | |].
  - intros z Hz. now rewrite Hc.
  - destruct (c x); assumption.
Qed.

Lemma continuous_of : forall u x u', D u x u' -> forall e, 0 < e ->
  exists d, 0 < d /\ forall z, Rabs (z - x) < d -> Rabs (u z - u x) < e.
Proof.
  intros u x u' H e He.
  assert (C : continuity_pt u x) by (apply derivable_continuous_pt; now exists u').
  destruct (C e He) as [d [Hd HC]]. exists d. split; [exact Hd |]. intros z Hz.
  destruct (Req_dec z x) as [-> | N].
  - replace (u x - u x) with 0 by ring. now rewrite Rabs_R0.
  - apply (HC z). split; [split; [exact I | now apply not_eq_sym] | exact Hz].
Qed.

(** What is smaller stays smaller nearby. *)
Lemma stays_below : forall u v x u' v', D u x u' -> D v x v' -> u x < v x ->
  exists d, 0 < d /\ forall z, Rabs (z - x) < d -> u z < v z.
Proof.
  intros u v x u' v' Hu Hv H.
  destruct (continuous_of u x u' Hu ((v x - u x) / 2) ltac:(lra)) as [a [Ha A]].
  destruct (continuous_of v x v' Hv ((v x - u x) / 2) ltac:(lra)) as [b [Hb B]].
  exists (Rmin a b). split; [now apply Rmin_pos |]. intros z Hz.
  assert (Rabs (z - x) < a) by (eapply Rlt_le_trans; [exact Hz | apply Rmin_l]).
  assert (Rabs (z - x) < b) by (eapply Rlt_le_trans; [exact Hz | apply Rmin_r]).
  specialize (A z ltac:(assumption)). specialize (B z ltac:(assumption)).
  apply Rabs_def2 in A. apply Rabs_def2 in B. lra.
Qed.

Lemma d_maximum : forall u v x u' v', D u x u' -> D v x v' ->
  (u x < v x -> D (fun t => Rmax (u t) (v t)) x v') /\ (v x < u x -> D (fun t => Rmax (u t) (v t)) x u') /\
  (u x = v x -> u' = v' -> D (fun t => Rmax (u t) (v t)) x (u' * / 2 + v' * / 2)).
Proof.
  intros u v x u' v' Hu Hv. repeat split.
  - intros H. destruct (stays_below _ _ _ _ _ Hu Hv H) as [d [Hd Hz]].
    apply D_locally with (f := v) (e := d); [assumption | | assumption].
    intros z Z. apply Rmax_right. left. now apply Hz.
  - intros H. destruct (stays_below _ _ _ _ _ Hv Hu H) as [d [Hd Hz]].
    apply D_locally with (f := u) (e := d); [assumption | | assumption].
    intros z Z. apply Rmax_left. left. now apply Hz.
  - intros E ->. intros e He. destruct (Hu e He) as [a A]. destruct (Hv e He) as [b B].
    assert (P : 0 < Rmin a b) by (apply Rmin_pos; [apply (cond_pos a) | apply (cond_pos b)]).
    exists (mkposreal _ P). intros h Hh Hs. simpl in Hs.
    specialize (A h Hh (Rlt_le_trans _ _ _ Hs (Rmin_l _ _))). specialize (B h Hh (Rlt_le_trans _ _ _ Hs (Rmin_r _ _))).
    replace (v' * / 2 + v' * / 2) with v' by field.
    unfold Rmax at 2. destruct (Rle_dec (u x) (v x)) as [_ | N]; [| lra].
    unfold Rmax. destruct (Rle_dec (u (x + h)) (v (x + h))); [exact B | rewrite <- E; exact A].
Qed.

Lemma Rmin_as_max : forall a b, Rmin a b = - Rmax (- a) (- b).
Proof. intros. unfold Rmin, Rmax. repeat destruct Rle_dec; lra. Qed.

Lemma D_opp : forall u x u', D u x u' -> D (fun t => - u t) x (- u').
Proof. intros. now apply derivable_pt_lim_opp. Qed.

Lemma d_minimum : forall u v x u' v', D u x u' -> D v x v' ->
  (u x < v x -> D (fun t => Rmin (u t) (v t)) x u') /\ (v x < u x -> D (fun t => Rmin (u t) (v t)) x v') /\
  (u x = v x -> u' = v' -> D (fun t => Rmin (u t) (v t)) x (u' * / 2 + v' * / 2)).
Proof.
  intros u v x u' v' Hu Hv.
  destruct (d_maximum _ _ _ _ _ (D_opp _ _ _ Hu) (D_opp _ _ _ Hv)) as [L [G E]].
  assert (X : forall l, D (fun t => Rmax (- u t) (- v t)) x (- l) -> D (fun t => Rmin (u t) (v t)) x l).
  { intros l H. apply derivable_pt_lim_ext with (f := fun t => - Rmax (- u t) (- v t)).
    - intros z. now rewrite Rmin_as_max.
    - eapply D_value; [apply (D_opp _ _ _ H) | ring]. }
  repeat split; intros; apply X; [apply G; lra | apply L; lra |].
  eapply D_value; [apply E; lra | ring].
Qed.

(** ** Reductions: over a list of functions of one variable, with a slope for each *)

Section Reductions.
  Variables (A : Type) (u : A -> R -> R) (x : R) (u' : A -> R).

  Lemma d_sum : forall js, (forall j, In j js -> D (u j) x (u' j)) ->
    D (fun t => lsum (fun j => u j t) js) x (lsum u' js).
  Proof.
    induction js as [| j js IH]; intros H; simpl; [apply D_const |].
    apply (d_add (u j) (fun t => lsum (fun j => u j t) js)); [apply H; now left | apply IH; intros; apply H; now right].
  Qed.

  Definition lprod (f : A -> R) (js : list A) : R := fold_right (fun j p => f j * p) 1 js.

  (** Σ over the elements of their slope times the product of the others, element by element. *)
  Fixpoint slope_of_product (js : list A) : R :=
    match js with
    | [] => 0
    | j :: rest => lprod (fun k => u k x) rest * u' j + u j x * slope_of_product rest
    end.

  Lemma d_prod : forall js, (forall j, In j js -> D (u j) x (u' j)) ->
    D (fun t => lprod (fun j => u j t) js) x (slope_of_product js).
  Proof.
    induction js as [| j js IH]; intros H; simpl; [apply D_const |].
    apply (d_mul (u j) (fun t => lprod (fun j => u j t) js)); [apply H; now left | apply IH; intros; apply H; now right].
  Qed.

  (** The product of the others by division where no element is 0 ... *)
  Lemma others_by_division : forall f before j after, f j <> 0 ->
    lprod f (before ++ after) = lprod f (before ++ j :: after) / f j.
  Proof.
    intros f before j after H. induction before as [| b bs IH]; simpl; [now field |].
    rewrite IH. unfold Rdiv. ring.
  Qed.

  (** ... 0 where another element is 0 ... *)
  Lemma others_with_zero : forall f js k, In k js -> f k = 0 -> lprod f js = 0.
  Proof.
    intros f js k. induction js as [| j js IH]; simpl; [contradiction |].
    intros [-> | H] E; [rewrite E; ring | rewrite IH; auto; ring].
  Qed.

  (** ... and, where this one alone is 0, the product with a 1 in its place. *)
  Lemma others_of_zero : forall f before j after, f j = 0 ->
    (forall k, In k (before ++ after) -> f k <> 0) ->
    lprod f (before ++ after) = lprod (fun k => if Reqb (f k) 0 then 1 else f k) (before ++ j :: after).
  Proof.
    intros f before j after E. induction before as [| b bs IH]; simpl; intros H.
    - destruct (Reqb (f j) 0) eqn:C; [| apply Reqb_false in C; contradiction].
      rewrite Rmult_1_l. clear C. induction after as [| a l IHl]; simpl; auto.
      destruct (Reqb (f a) 0) eqn:C; [apply Reqb_true in C; exfalso; apply (H a); simpl; auto |].
      rewrite IHl; auto. intros. apply H. now right.
    - destruct (Reqb (f b) 0) eqn:C; [apply Reqb_true in C; exfalso; apply (H b); simpl; auto |].
      rewrite IH; auto.
  Qed.

  (** What is ordered strictly stays so nearby: a result that is an element as long as it does has its slope. *)
  Lemma order_stays : forall pairs : list (A * A), (forall p, In p pairs -> u (fst p) x < u (snd p) x) ->
    (forall j, D (u j) x (u' j)) ->
    exists d, 0 < d /\ forall z, Rabs (z - x) < d -> forall p, In p pairs -> u (fst p) z < u (snd p) z.
  Proof.
    intros pairs H Hu. induction pairs as [| p ps IH].
    - exists 1. split; [lra |]. intros z _ p [].
    - destruct IH as [a [Ha Az]]; [intros; apply H; now right |].
      destruct (stays_below _ _ _ _ _ (Hu (fst p)) (Hu (snd p)) (H p (or_introl eq_refl))) as [b [Hb Bz]].
      exists (Rmin a b). split; [now apply Rmin_pos |]. intros z Hz q [<- | Q].
      + apply Bz. eapply Rlt_le_trans; [exact Hz | apply Rmin_r].
      + apply Az; [| exact Q]. eapply Rlt_le_trans; [exact Hz | apply Rmin_l].
  Qed.

  (** An entry of a list of the k largest, or any result that the order decides. *)
  Lemma d_listed : forall (g : R -> R) pairs j, (forall p, In p pairs -> u (fst p) x < u (snd p) x) ->
    (forall j, D (u j) x (u' j)) ->
    (forall z, (forall p, In p pairs -> u (fst p) z < u (snd p) z) -> g z = u j z) -> D g x (u' j).
  Proof.
    intros g pairs j H Hu Hg. destruct (order_stays pairs H Hu) as [d [Hd Hz]].
    apply D_locally with (f := u j) (e := d); [exact Hd | | apply Hu].
    intros z Z. apply Hg. now apply Hz.
  Qed.

  (** The largest element, where it is larger than every other. *)
  Lemma d_max : forall (g : R -> R) (js : list A) j, (forall k, In k js -> u k x < u j x) ->
    (forall j, D (u j) x (u' j)) ->
    (forall z, (forall k, In k js -> u k z < u j z) -> g z = u j z) -> D g x (u' j).
  Proof.
    intros g js j H Hu Hg. apply (d_listed g (map (fun k => (k, j)) js) j); [| exact Hu |].
    - intros p Hp. apply in_map_iff in Hp. destruct Hp as [k [<- K]]. simpl. now apply H.
    - intros z Hz. apply Hg. intros k K. apply (Hz (k, j)). apply in_map_iff. now exists k.
  Qed.

  Lemma d_min : forall (g : R -> R) (js : list A) j, (forall k, In k js -> u j x < u k x) ->
    (forall j, D (u j) x (u' j)) ->
    (forall z, (forall k, In k js -> u j z < u k z) -> g z = u j z) -> D g x (u' j).
  Proof.
    intros g js j H Hu Hg. apply (d_listed g (map (fun k => (j, k)) js) j); [| exact Hu |].
    - intros p Hp. apply in_map_iff in Hp. destruct Hp as [k [<- K]]. simpl. now apply H.
    - intros z Hz. apply Hg. intros k K. apply (Hz (j, k)). apply in_map_iff. now exists k.
  Qed.
End Reductions.
