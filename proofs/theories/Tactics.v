(** * Tactics that close the obligations of one form, so that a printer need not know proofs.

    How an instance is printed. One file per certificate, every obligation one lemma over plain variables:

        From Coq Require Import Reals List.
        From Redalg Require Import Fold Sums Transport Order Invariant Tactics.
        Open Scope R_scope.

        Lemma O1_stage2 : forall x D A : R, exp (x - D) = exp (A - D) * exp (x - A).
        Proof. redalg_solve. Qed.

    - Names: [O1_<stage>], [O2_<slot>], [O3_<slot>], [O3_<slot>_still], [O4_<kind>], [O5_<slot>], [O7_<slot>_<n>].
    - Variables: every leaf of the pair (a tensor at one element, an anchor [A], [A'], [A''], a slot, a count) is one
      real variable; a Boolean leaf is a [bool]. Positions and counts are reals.
    - A stage value is one variable too. Two stage values that determine each other (Σ exp x and Σ exp (x - m)) are
      related by a hypothesis, [0 < l -> L = exp m * l -> ...], or O1 is false as it stands.
    - Assumptions are hypotheses before the equation: domains ([0 < w]), counts ([0 < n]), divisors ([A <> 0]), order
      facts of extremum anchors ([x <= M -> M <= M']). What is not stated is not known.
    - Operations: [+ - * /], [^] with a literal exponent of type nat, [/ (a ^ k)] for negative powers, [sqrt] for the
      power 1/2, [Rpower] for other powers, [exp ln sin cos tanh], [Rabs Rmax Rmin], and from Signs.v [relu sigmoid
      log1p], the conditions [Rltb Rleb Reqb andb orb negb] (of type bool) and [if c then a else b] for [where].
      Any other map of one element is a function variable [f : R -> R]. Infinities are not printed: the identity is
      adjoined ([option]), an element -oo is [None] (Transport.masked_moving).
    - A reduction inside an element is [lsum (fun d => ...) ds] over a list variable, the same list for the same axis
      (and its renamings); d is of any type, the tensors read at d are function variables.
    - Several slots: an inductive type of slot names, [phi], [rows] and [terms] as in Examples.v, then [redalg_slots]
      for each law in all slots at once; a value with several parts is a tuple; free axes are arguments of the slot.
    - A map that is pulled out of an order reduction: [forall u v, u <= v -> phi u <= phi v] (or [<], for positions),
      closed by [redalg_mono].
    - Results, for every tree and order: [additive_value], [multiplicative_value], [shift_value] (several anchors),
      [average_value], [form_state], [extremum_anchor], [max_bracketing], [argmax_bracketing], [topk_bracketing],
      [lean_run], [every_result], applied to these lemmas:

        Inductive slot := L.
        Definition phi (x A : R) (i : slot) : R := match i with L => exp (x - A) end.
        Definition rows (i : slot) : list ((R -> R) * slot) := match i with L => [(fun h => exp (- h), L)] end.
        Definition terms : list ((R -> R -> R) * slot) := [(fun D A => exp (A - D), L)].
        Theorem stage2 : forall first meet t D xs, Permutation (leaves t) xs -> xs <> [] ->
          option_map (value terms D) (form phi (fun A A' => Ts rows (A' - A)) first meet t)
          = Some (lsum (fun x => exp (x - D)) xs).
        Proof. intros. apply additive_value with (F := fun x D => exp (x - D)); auto; redalg_slots. Qed.

    [redalg_solve], [redalg_slots] and [redalg_mono] leave no goal or fail; they use no hypothesis that is not stated. *)

From Coq Require Import List Reals Lra Psatz Bool.
From Redalg Require Import Sums.
From Redalg Require Export Signs.
Open Scope R_scope.

(** ** Exponentials: exp of a polynomial as a product of powers of atoms [rs_e monomial] *)

Lemma rs_plus : forall x y u v, exp x = u -> exp y = v -> exp (x + y) = u * v.
Proof. intros. subst. apply exp_plus. Qed.

Lemma rs_minus : forall x y u v, exp x = u -> exp y = v -> exp (x - y) = u * / v.
Proof. intros. subst. unfold Rminus. now rewrite exp_plus, exp_Ropp. Qed.

Lemma rs_opp : forall x u, exp x = u -> exp (- x) = / u.
Proof. intros. subst. apply exp_Ropp. Qed.

Lemma rs_negated : forall t r u, exp r = u -> t = - r -> exp t = / u.
Proof. intros. subst. apply exp_Ropp. Qed.

Lemma rs_times : forall (n : nat) t r u, exp r = u -> t = INR n * r -> exp t = u ^ n.
Proof.
  intros n t r u <- ->. induction n as [|n IH]; [simpl; now rewrite Rmult_0_l, exp_0 |].
  rewrite S_INR, Rmult_plus_distr_r, Rmult_1_l, exp_plus, IH. simpl. ring.
Qed.

Lemma rs_times_neg : forall (n : nat) t r u, exp r = u -> t = - (INR n * r) -> exp t = / u ^ n.
Proof. intros. subst t. rewrite exp_Ropp. f_equal. eapply rs_times; eauto. Qed.

(** The literal at the head of a product, and the product without it. *)
Ltac rs_head t :=
  lazymatch t with
  | ?a * _ => rs_head a
  | _ => t
  end.

Ltac rs_rest t :=
  lazymatch t with
  | IZR _ * ?y => y
  | ?a * ?y => let r := rs_rest a in constr:(r * y)
  | IZR _ => constr:(1)
  end.

(** [- a * y * z] without its sign. *)
Ltac rs_unsigned t :=
  lazymatch t with
  | ?a * ?y => let r := rs_unsigned a in constr:(r * y)
  | - ?a => a
  end.

Ltac rs_numeral p := let n := eval compute in (Pos.to_nat p) in n.

Ltac rs_expand :=
  lazymatch goal with
  | |- exp ?b = _ =>
      lazymatch b with
      | _ + _ => eapply rs_plus; rs_expand
      | _ - _ => eapply rs_minus; rs_expand
      | - _ => eapply rs_opp; rs_expand
      | IZR Z0 => exact exp_0
      | IZR (Zpos xH) => exact (eq_refl (rs_e 1))
      | ln ?a => apply (exp_ln a); rs_positive
      | _ =>
          let c := rs_head b in
          lazymatch c with
          | IZR (Zpos ?p) =>
              let r := rs_rest b in let n := rs_numeral p in
              eapply (rs_times n b r); [rs_expand | simpl INR; ring]
          | IZR (Zneg ?p) =>
              let r := rs_rest b in let n := rs_numeral p in
              eapply (rs_times_neg n b r); [rs_expand | simpl INR; ring]
          | - _ => let r := rs_unsigned b in eapply (rs_negated b r); [rs_expand | ring]
          | _ => exact (eq_refl (rs_e b))
          end
      end
  end.

Ltac rs_one_exp a :=
  let H := fresh in
  pose proof (eq_refl a) as H;
  unfold Rdiv in H; rewrite ?Rinv_mult, ?Rinv_inv in H; ring_simplify in H;
  lazymatch type of H with
  | _ = ?b =>
      clear H;
      let E := fresh in
      assert (E : exp a = exp b) by (apply f_equal; first [reflexivity | ring | field; rs_side]);
      let F := fresh in
      eassert (F : exp b = _) by rs_expand;
      rewrite (eq_trans E F); clear E F
  end.

(** Atoms whose arguments are equal, or multiples of each other by a literal, become one. *)
Ltac rs_unify :=
  repeat match goal with
  | |- context [rs_e ?r] =>
      match goal with
      | |- context [rs_e ?s] =>
          tryif constr_eq r s then fail else
          first
            [ replace (rs_e s) with (rs_e r) by (apply f_equal; ring)
            | replace (rs_e s) with (/ rs_e r) by (symmetry; apply (rs_opp r); reflexivity || (replace s with (- r) by ring; apply (rs_opp r); reflexivity))
            | lazymatch r with
              | context [/ IZR (Zpos ?q)] =>
                  let n := rs_numeral q in
                  replace (rs_e s) with (rs_e r ^ n) by (symmetry; apply (rs_times n s r); [reflexivity | simpl INR; field])
              end ]
      end
  end.

Ltac rs_exp := repeat match goal with |- context [exp ?a] => rs_one_exp a end; rs_unify.

(** ** Logarithms and roots, where the signs they need are known *)

Lemma rs_ln_pow : forall n x, 0 < x -> ln (x ^ n) = INR n * ln x.
Proof.
  induction n as [|n IH]; intros x H; [simpl; rewrite ln_1; ring |].
  rewrite S_INR. simpl. rewrite ln_mult, IH by (auto using pow_lt). ring.
Qed.

Lemma rs_ln_div : forall x y, 0 < x -> 0 < y -> ln (x / y) = ln x - ln y.
Proof. intros. unfold Rdiv. rewrite ln_mult, ln_Rinv by (auto using Rinv_0_lt_compat). ring. Qed.

Lemma rs_ln_sqrt : forall x, 0 < x -> ln (sqrt x) = ln x / 2.
Proof.
  intros x H. rewrite <- (sqrt_sqrt x) at 2 by lra. rewrite ln_mult by now apply sqrt_lt_R0. field.
Qed.

Ltac rs_log :=
  repeat match goal with
  | |- context [ln (exp ?a)] => rewrite (ln_exp a)
  | |- context [exp (ln ?a)] => rewrite (exp_ln a) by rs_positive
  | |- context [ln 1] => rewrite ln_1
  | |- context [ln (?a * ?b)] => rewrite (ln_mult a b) by rs_positive
  | |- context [ln (?a / ?b)] => rewrite (rs_ln_div a b) by rs_positive
  | |- context [ln (/ ?a)] => rewrite (ln_Rinv a) by rs_positive
  | |- context [ln (?a ^ ?n)] => rewrite (rs_ln_pow n a) by rs_positive
  | |- context [ln (sqrt ?a)] => rewrite (rs_ln_sqrt a) by rs_positive
  end; simpl INR.

Ltac rs_root :=
  repeat match goal with
  | |- context [sqrt 0] => rewrite sqrt_0
  | |- context [sqrt 1] => rewrite sqrt_1
  | |- context [sqrt (?a * ?a)] => rewrite (sqrt_square a) by rs_positive
  | |- context [sqrt (?a ^ 2)] => rewrite (sqrt_pow2 a) by rs_positive
  | |- context [sqrt (?a * ?b)] => rewrite (sqrt_mult a b) by rs_positive
  | |- context [sqrt (?a / ?b)] => rewrite (sqrt_div_alt a b) by rs_positive
  | |- context [sqrt (/ ?a)] => rewrite (sqrt_inv a)
  end.

Lemma rs_sqrt_square : forall a, 0 <= a -> sqrt a * sqrt a = a.
Proof. exact sqrt_sqrt. Qed.

Lemma rs_sin_square : forall a, sin a * sin a = 1 - cos a * cos a.
Proof. intros. pose proof (sin2_cos2 a) as H. unfold Rsqr in H. lra. Qed.

Ltac rs_trig :=
  unfold Rminus; rewrite ?sin_plus, ?cos_plus, ?sin_neg, ?cos_neg, ?sin_0, ?cos_0.

(** Squares of roots and sines as equations for [ring] and [field]. *)
Ltac rs_known a := match goal with H : a |- _ => idtac end.
Ltac rs_squares :=
  repeat match goal with
  | |- context [sqrt ?a] =>
      tryif rs_known (sqrt a * sqrt a = a) then fail else
      assert (sqrt a * sqrt a = a) by (apply rs_sqrt_square; rs_positive)
  | |- context [sin ?a] =>
      tryif rs_known (sin a * sin a = 1 - cos a * cos a) then fail else pose proof (rs_sin_square a)
  end.

Ltac rs_with_squares tac :=
  rs_squares;
  lazymatch goal with
  | H1 : ?a * ?a = _, H2 : ?b * ?b = _, H3 : ?c * ?c = _ |- _ => ring [H1 H2 H3]
  | H1 : ?a * ?a = _, H2 : ?b * ?b = _ |- _ => first [ring [H1 H2] | field [H1 H2]; rs_side]
  | H1 : ?a * ?a = _ |- _ => first [ring [H1] | field [H1]; rs_side]
  end.

(** ** Cases: maxima, absolute values, conditions *)

Ltac rs_flat t :=
  lazymatch t with
  | context [Rmax _ _] => fail
  | context [Rmin _ _] => fail
  | context [Rabs _] => fail
  | context [Rltb _ _] => fail
  | context [Rleb _ _] => fail
  | context [Reqb _ _] => fail
  | context [if _ then _ else _] => fail
  | _ => idtac
  end.

Ltac rs_prune :=
  try (exfalso; first [lra | congruence | match goal with H : ?a <> ?b |- _ => apply H; lra end]).

(** A condition that holds, or does not, everywhere in the goal. *)
Ltac rs_condition c yes no :=
  let H := fresh in
  destruct c eqn:H; rewrite ?H in *; [apply yes in H | apply no in H]; rs_prune.

(** One case distinction, innermost first, with what it says of the other occurrences. *)
Ltac rs_case :=
  match goal with
  | b : bool |- _ => destruct b
  | |- context [Rmax ?a ?b] =>
      rs_flat a; rs_flat b;
      let H := fresh in
      destruct (Rle_lt_dec a b) as [H|H]; [rewrite (Rmax_right a b H) | rewrite (Rmax_left a b (Rlt_le _ _ H))]; rs_prune
  | |- context [Rmin ?a ?b] =>
      rs_flat a; rs_flat b;
      let H := fresh in
      destruct (Rle_lt_dec a b) as [H|H]; [rewrite (Rmin_left a b H) | rewrite (Rmin_right a b (Rlt_le _ _ H))]; rs_prune
  | |- context [Rabs ?a] =>
      rs_flat a;
      let H := fresh in
      destruct (Rle_lt_dec 0 a) as [H|H];
      [rewrite (Rabs_pos_eq a H) | rewrite (Rabs_left a H)]; rs_prune
  | |- context [Rltb ?a ?b] => rs_flat a; rs_flat b; rs_condition (Rltb a b) Rltb_true Rltb_false
  | |- context [Rleb ?a ?b] => rs_flat a; rs_flat b; rs_condition (Rleb a b) Rleb_true Rleb_false
  | |- context [Reqb ?a ?b] => rs_flat a; rs_flat b; rs_condition (Reqb a b) Reqb_true Reqb_false
  | |- context [if ?c then _ else _] => lazymatch type of c with sumbool _ _ => rs_flat c; destruct c; rs_prune end
  | _ : context [Rltb ?a ?b] |- _ => rs_flat a; rs_flat b; rs_condition (Rltb a b) Rltb_true Rltb_false
  | _ : context [Rleb ?a ?b] |- _ => rs_flat a; rs_flat b; rs_condition (Rleb a b) Rleb_true Rleb_false
  | _ : context [Reqb ?a ?b] |- _ => rs_flat a; rs_flat b; rs_condition (Reqb a b) Reqb_true Reqb_false
  | H : context [Rmax ?a ?b] |- _ =>
      rs_flat a; rs_flat b;
      let K := fresh in
      destruct (Rle_lt_dec a b) as [K|K];
      [rewrite (Rmax_right a b K) in * | rewrite (Rmax_left a b (Rlt_le _ _ K)) in *]; rs_prune
  | H : context [Rmin ?a ?b] |- _ =>
      rs_flat a; rs_flat b;
      let K := fresh in
      destruct (Rle_lt_dec a b) as [K|K];
      [rewrite (Rmin_left a b K) in * | rewrite (Rmin_right a b (Rlt_le _ _ K)) in *]; rs_prune
  end.

(** Equations between a variable and something else, from conditions, are used. *)
Ltac rs_subst := repeat match goal with H : ?x = _ :> R |- _ => is_var x; subst x | H : _ = ?x :> R |- _ => is_var x; subst x end.

(** ** Sums over an inner axis: everything moves inside, then element by element *)

Ltac rs_inside :=
  rewrite <- ?lsum_scal, <- ?lsum_scal_r; unfold Rdiv; rewrite <- ?lsum_scal_r;
  rewrite <- ?lsum_opp; repeat (rewrite <- ?lsum_plus; rewrite <- ?lsum_minus).

(** ** Closing one case *)

(** Inverses of products and powers hold without conditions ([/ 0 = 0]), so they are tried before [field]. *)
Lemma rs_inv_pow : forall (x : R) n, / x ^ n = (/ x) ^ n.
Proof. induction n as [|n IH]; simpl; [apply Rinv_1 | now rewrite Rinv_mult, IH]. Qed.

Ltac rs_inverses := unfold Rdiv; repeat rewrite ?Rinv_mult, ?rs_inv_pow, ?Rinv_inv.

Ltac rs_field := first [solve [ring] | solve [field; rs_side] | solve [rs_inverses; ring]].

Ltac rs_close :=
  first
    [ solve [reflexivity | assumption | congruence]
    | solve [lra]
    | rs_field
    | solve [rs_positive | rs_nonzero]
    | solve [progress rs_exp; rs_field]
    | solve [progress rs_log; first [rs_field | lra | progress rs_exp; rs_field]]
    | solve [progress rs_root; first [rs_field | rs_with_squares ltac:(idtac)]]
    | solve [rs_with_squares ltac:(idtac)]
    | solve [rs_trig; first [rs_field | rs_with_squares ltac:(idtac) | progress rs_exp; rs_field]]
    | solve [nra] ].

Ltac rs_parts :=
  repeat match goal with
  | |- _ /\ _ => split
  | |- (_, _) = (_, _) => apply f_equal2
  | |- Some _ = Some _ => apply f_equal
  end.

Ltac rs_sums :=
  match goal with
  | |- lsum _ ?xs = lsum _ ?xs => apply lsum_ext; intros
  | |- context [lsum] => progress rs_inside; try (apply lsum_ext; intros)
  end.

(** The tactic of printed lemmas. *)
Ltac redalg_solve :=
  intros; rs_unfold; cbn [fst snd] in *; rs_parts;
  first
    [ rs_close
    | solve [rs_sums; rs_parts; first [rs_close | rs_sums; rs_close]]
    | solve [repeat (rs_case; cbn [fst snd andb orb negb] in *); rs_parts; first [rs_close | progress rs_subst; rs_close]]
    | solve [progress rs_subst; rs_parts; rs_close] ].

(** Laws in all slots at once: goals over an index, whose rows and elements compute. *)
Ltac rs_index :=
  match goal with
  | i : ?I |- _ = _ =>
      lazymatch I with R => fail | _ => idtac end;
      lazymatch goal with |- context [i] => destruct i end
  end.

Ltac redalg_slots :=
  intros; try rs_index; cbn -[IZR pow Rdiv Rminus Rmax Rmin Rabs] in *; redalg_solve.

(** ** Monotone maps: [forall u v, u <= v -> phi u <= phi v] and the strict version *)

Lemma rs_exp_le : forall u v, u <= v -> exp u <= exp v.
Proof. intros u v [H| ->]; [left; now apply exp_increasing | apply Rle_refl]. Qed.

Lemma rs_ln_le : forall u v, 0 < u -> u <= v -> ln u <= ln v.
Proof. intros u v P [H| ->]; [left; now apply ln_increasing | apply Rle_refl]. Qed.

Lemma rs_max_le : forall a b u v, a <= b -> u <= v -> Rmax a u <= Rmax b v.
Proof. intros. unfold Rmax. repeat destruct Rle_dec; lra. Qed.

Lemma rs_min_le : forall a b u v, a <= b -> u <= v -> Rmin a u <= Rmin b v.
Proof. intros. unfold Rmin. repeat destruct Rle_dec; lra. Qed.

Lemma rs_inv_le : forall u v, 0 < u -> u <= v -> / v <= / u.
Proof. intros. apply Rinv_le_contravar; auto. Qed.

Lemma rs_inv_lt : forall u v, 0 < u -> u < v -> / v < / u.
Proof. intros. apply Rinv_lt_contravar; auto. apply Rmult_lt_0_compat; lra. Qed.

Ltac rs_mono :=
  first
    [ assumption
    | apply Rle_refl
    | lra
    | lazymatch goal with
      | |- exp _ <= exp _ => apply rs_exp_le; rs_mono
      | |- exp _ < exp _ => apply exp_increasing; rs_mono
      | |- ln _ <= ln _ => apply rs_ln_le; [rs_positive | rs_mono]
      | |- ln _ < ln _ => apply ln_increasing; [rs_positive | rs_mono]
      | |- sqrt _ <= sqrt _ => apply sqrt_le_1_alt; rs_mono
      | |- sqrt _ < sqrt _ => apply sqrt_lt_1_alt; split; [rs_positive | rs_mono]
      | |- Rmax _ _ <= Rmax _ _ => apply rs_max_le; rs_mono
      | |- Rmin _ _ <= Rmin _ _ => apply rs_min_le; rs_mono
      | |- / _ <= / _ => apply rs_inv_le; [rs_positive | rs_mono]
      | |- / _ < / _ => apply rs_inv_lt; [rs_positive | rs_mono]
      | |- - _ <= - _ => apply Ropp_le_contravar; rs_mono
      | |- - _ < - _ => apply Ropp_lt_contravar; rs_mono
      | |- ?c * _ <= ?c * _ => apply Rmult_le_compat_l; [rs_positive | rs_mono]
      | |- ?c * _ < ?c * _ => apply Rmult_lt_compat_l; [rs_positive | rs_mono]
      | |- _ / ?c <= _ / ?c => apply Rmult_le_compat_r; [rs_positive | rs_mono]
      | |- _ / ?c < _ / ?c => apply Rmult_lt_compat_r; [rs_positive | rs_mono]
      | |- _ * ?c <= _ * ?c => apply Rmult_le_compat_r; [rs_positive | rs_mono]
      | |- _ * ?c < _ * ?c => apply Rmult_lt_compat_r; [rs_positive | rs_mono]
      | |- _ - _ <= _ - _ => apply Rplus_le_compat; rs_mono
      | |- _ + _ <= _ + _ => apply Rplus_le_compat; rs_mono
      | |- _ + _ < _ + _ => first [apply Rplus_lt_le_compat; rs_mono | apply Rplus_le_lt_compat; rs_mono]
      end
    | nra ].

Ltac redalg_mono := intros; rs_unfold; solve [rs_mono].
