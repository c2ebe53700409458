(** * Words and tactics of printed certificates: reductions over the stream as numbers, and sums in terms of others.

    [lmax], [lmin], [lprod], [lany], [lall]: the reductions of a definition as total functions (of a stream that is not
    empty; the value of an empty one is never used). A printed proof names every sum over the stream ([set]), states it
    in sums of monomials ([redalg_sum] proves that), forgets what the sums are, and is left with an equation of numbers. *)

From Coq Require Import List Reals Lra Bool.
From Redalg Require Import Fold Sums Order Tactics.
Open Scope R_scope.
Set Implicit Arguments.

Definition lfold (A V : Type) (zero : V) (op : V -> V -> V) (f : A -> V) (xs : list A) : V :=
  match reduce op (map f xs) with Some v => v | None => zero end.

Definition lmax (A : Type) : (A -> R) -> list A -> R := lfold 0 Rmax.
Definition lmin (A : Type) : (A -> R) -> list A -> R := lfold 0 Rmin.
Definition lprod (A : Type) : (A -> R) -> list A -> R := lfold 1 Rmult.
Definition lany (A : Type) : (A -> bool) -> list A -> bool := lfold false orb.
Definition lall (A : Type) : (A -> bool) -> list A -> bool := lfold true andb.

Section Folds.
  Variables (A V : Type) (zero : V) (op : V -> V -> V).

  Lemma lfold_ext : forall (f g : A -> V) xs, (forall x, f x = g x) -> lfold zero op f xs = lfold zero op g xs.
  Proof. intros f g xs H. unfold lfold. now rewrite (map_ext f g H). Qed.

  Lemma lfold_some : forall (f : A -> V) xs, xs <> nil -> reduce op (map f xs) = Some (lfold zero op f xs).
  Proof.
    intros f xs N. unfold lfold. destruct (@reduce_some V op (map f xs)) as [s H]; [| now rewrite H].
    intros E. apply map_eq_nil in E. contradiction.
  Qed.
End Folds.

(** What a monotone map of every element is: it leaves the extremum. *)
Lemma lmax_monotone : forall (A : Type) (phi : R -> R) (f : A -> R) xs, xs <> nil ->
  (forall u v, u <= v -> phi u <= phi v) -> lmax (fun x => phi (f x)) xs = phi (lmax f xs).
Proof.
  intros A phi f xs N H. unfold lmax, lfold.
  assert (E := reduce_map Rmax Rmax phi (fun a b => eq_sym (Rmax_monotone phi a b H)) (map f xs)).
  rewrite map_map in E. rewrite <- E. destruct (@reduce_some R Rmax (map f xs)) as [s Hs].
  - intros E0. apply map_eq_nil in E0. contradiction.
  - now rewrite Hs.
Qed.

Lemma lmin_opp : forall (A : Type) (f : A -> R) xs, xs <> nil -> lmin f xs = - lmax (fun x => - f x) xs.
Proof.
  intros A f [|x xs] N; [contradiction |]. unfold lmin, lmax, lfold. cbn [map].
  rewrite rmin_reduce, rmax_reduce, rmin_opp, map_map. reflexivity.
Qed.

Lemma lmax_upper : forall (A : Type) (f : A -> R) xs x, In x xs -> f x <= lmax f xs.
Proof.
  intros A f [|y xs] x H; [destruct H |]. unfold lmax, lfold. cbn [map]. rewrite rmax_reduce.
  apply rmax_upper. change (f y :: map f xs) with (map f (y :: xs)). now apply in_map.
Qed.

Lemma lmax_attained : forall (A : Type) (f : A -> R) xs, xs <> nil -> exists x, In x xs /\ f x = lmax f xs.
Proof.
  intros A f [|y xs] N; [contradiction |]. unfold lmax, lfold. cbn [map]. rewrite rmax_reduce.
  pose proof (rmax_attained (f y) (map f xs)) as H. change (f y :: map f xs) with (map f (y :: xs)) in H.
  apply in_map_iff in H. destruct H as (x & E & H). eauto.
Qed.

(** ** Facts about every element, where an element is at hand *)

(** A rounding that is assumed to commute with rescaling is a multiple of its argument. *)
Lemma cast_is : forall c : R -> R, (forall v w, c (v * w) = c v * w) -> forall t, c t = t * c 1.
Proof. intros c H t. rewrite <- (Rmult_1_l t) at 1. rewrite H. ring. Qed.

Ltac rs_casts :=
  repeat match goal with
  | L : forall v w : R, ?c (v * w) = ?c v * w |- context [?c ?t] => lazymatch t with 1 => fail | _ => rewrite (cast_is c L t) end
  | L : forall v : R, ?c v = v |- context [?c ?t] => rewrite (L t)
  end.

Ltac rs_done P := match goal with H : P |- _ => idtac end.
Ltac rs_at :=
  repeat match goal with
  | H : forall d : nat, _, j : nat |- _ =>
      let P := type of (H j) in
      lazymatch P with forall _ : nat, _ => fail | _ => idtac end;
      tryif rs_done P then fail else pose proof (H j)
  end;
  rs_casts.

(** ** Sums by name *)

Lemma count_is_sum : forall (A : Type) (xs : list A), lsum (fun _ => 1) xs = INR (length xs).
Proof. intros. rewrite lsum_const. ring. Qed.

Ltac redalg_count xs n :=
  let C := fresh "C" in
  assert (C : 0 < INR (length xs)) by (apply INR_length_pos; assumption);
  set (n := INR (length xs)) in *.

Ltac rs_even :=
  match goal with |- 0 <= ?x ^ ?n =>
    let k := eval compute in (Nat.div n 2) in change (x ^ n) with (x ^ (2 * k)); rewrite pow_mult; apply pow_le; apply rs_pow_pos_even end.
Ltac rs_sign :=
  first [rs_positive | rs_even | apply Rmult_le_pos; rs_sign | apply Rplus_le_le_0_compat; rs_sign | apply lsum_nonneg; intros; rs_sign].
Ltac redalg_sign := rs_at; rs_unfold; rs_sign.
Ltac redalg_total := first [apply lsum_pos; [assumption |] | apply lsum_nonneg]; intros; redalg_sign.

Ltac rs_opened :=
  lazymatch goal with |- ?s = _ => unfold s end;
  repeat match goal with
  | b := lsum _ _ : R |- context [?c] => constr_eq b c; unfold b
  | b := lmax _ _ : R |- context [?c] => constr_eq b c; unfold b
  | b := lmin _ _ : R |- context [?c] => constr_eq b c; unfold b
  end.

(** Reductions that have two names get one: what is named first is opened last. *)
Ltac rs_renamed :=
  lazymatch goal with |- ?s = _ => unfold s end;
  repeat match goal with E : ?s = ?b |- _ => is_var s; is_var b; rewrite E; clear E end;
  match goal with |- ?s = _ => let q := fresh in set (q := s) end;
  rs_opened.

Ltac redalg_sum := rs_renamed; rs_inside; apply lsum_ext; intros; rs_at; redalg_solve.

Lemma lprod_exp : forall (A : Type) (f : A -> R) xs, xs <> nil -> (forall x, 0 < f x) ->
  lprod f xs = exp (lsum (fun x => ln (f x)) xs).
Proof.
  intros A f xs N P. unfold lprod, lfold.
  assert (H : forall ys, match reduce Rmult (map f ys) with Some v => v | None => 1 end = exp (lsum (fun x => ln (f x)) ys)).
  { induction ys as [|y ys IH]; [symmetry; apply exp_0 |].
    cbn [map reduce]. rewrite lsum_cons, exp_plus, <- IH, exp_ln by apply P.
    destruct (reduce Rmult (map f ys)); cbn; ring. }
  apply H.
Qed.

Ltac redalg_product :=
  lazymatch goal with |- ?s = _ => unfold s end;
  rewrite lprod_exp by first [assumption | intros; rs_unfold; redalg_sign];
  apply f_equal;
  match goal with |- ?s = _ => let q := fresh in set (q := s) end;
  redalg_sum.

(** *** Extrema: between its elements, one of which it is *)

Lemma lmax_is : forall (A : Type) (f : A -> R) xs m, xs <> nil ->
  (forall x, In x xs -> f x <= m) -> (exists x, In x xs /\ f x = m) -> lmax f xs = m.
Proof.
  intros A f xs m N U (x & I & E). apply Rle_antisym.
  - destruct (lmax_attained f N) as (y & Iy & <-). auto.
  - rewrite <- E. now apply lmax_upper.
Qed.

Lemma lmin_is : forall (A : Type) (f : A -> R) xs m, xs <> nil ->
  (forall x, In x xs -> m <= f x) -> (exists x, In x xs /\ f x = m) -> lmin f xs = m.
Proof.
  intros A f xs m N U (x & I & E). rewrite lmin_opp by assumption. rewrite (@lmax_is A _ xs (- m)); auto.
  - ring.
  - intros y Iy. apply Ropp_le_contravar. auto.
  - exists x. rewrite E. auto.
Qed.

Lemma lmin_lower : forall (A : Type) (f : A -> R) xs x, In x xs -> lmin f xs <= f x.
Proof.
  intros A f xs x H. assert (N : xs <> nil) by (intros E; subst; destruct H).
  rewrite lmin_opp by assumption. pose proof (lmax_upper (fun x => - f x) xs x H). cbv beta in *. lra.
Qed.

Lemma lmin_attained : forall (A : Type) (f : A -> R) xs, xs <> nil -> exists x, In x xs /\ f x = lmin f xs.
Proof.
  intros A f xs N. rewrite lmin_opp by assumption. destruct (lmax_attained (fun x => - f x) N) as (x & I & E).
  exists x. rewrite <- E. split; [assumption | ring].
Qed.

(** The extrema on the right, as numbers that bound their elements and that some element attains. *)
Ltac rs_bounds :=
  repeat match goal with
  | N : ?l <> nil |- context [lmax ?g ?l] =>
      let U := fresh "U" in let I := fresh "I" in let E := fresh "E" in let p := fresh "p" in let m := fresh "m" in
      pose proof (lmax_upper g l) as U; destruct (lmax_attained g N) as (p & I & E); set (m := lmax g l) in *; clearbody m;
      cbv beta in U, E
  | N : ?l <> nil |- context [lmin ?g ?l] =>
      let U := fresh "U" in let I := fresh "I" in let E := fresh "E" in let p := fresh "p" in let m := fresh "m" in
      pose proof (lmin_lower g l) as U; destruct (lmin_attained g N) as (p & I & E); set (m := lmin g l) in *; clearbody m;
      cbv beta in U, E
  end.

Ltac rs_member := repeat match goal with U : forall x, In x ?l -> _, I : In ?p ?l |- _ => let P := type of (U p I) in tryif rs_done P then fail else pose proof (U p I) end.

Ltac rs_ordered := cbv beta in *; first [reflexivity | lra | rs_unfold; solve [rs_mono] | solve [repeat (rs_case; cbn [andb orb negb] in * ); lra] | nra].

Ltac rs_attained :=
  repeat match goal with |- context [Rmax ?a ?b] =>
    rs_flat a; rs_flat b; let H := fresh in
    destruct (Rle_lt_dec a b) as [H|H]; [rewrite (Rmax_right a b H) | rewrite (Rmax_left a b (Rlt_le _ _ H))] end;
  match goal with I : In ?p ?l, E : _ = ?m |- exists x, In x ?l /\ _ =>
    exists p; split; [exact I |]; cbv beta;
    first [rewrite E; solve [reflexivity | ring] | solve [rs_at; rs_member; rs_ordered]] end.

Ltac redalg_extremum :=
  rs_renamed;
  first [apply lmax_is | apply lmin_is]; [assumption | rs_bounds; intros ? ?; rs_at; rs_member; rs_ordered | rs_bounds; rs_attained].

Ltac rs_forget_extrema :=
  repeat match goal with
  | |- context [lmax ?f ?l] => let m := fresh "m" in set (m := lmax f l) in *; clearbody m
  | |- context [lmin ?f ?l] => let m := fresh "m" in set (m := lmin f l) in *; clearbody m
  | |- context [lprod ?f ?l] => let m := fresh "m" in set (m := lprod f l) in *; clearbody m
  end.

Ltac redalg_forget :=
  rewrite ?count_is_sum in *;
  repeat match goal with n := INR (length ?l) : R |- _ => subst n end;
  repeat match goal with s := _ : R |- _ => clearbody s end;
  repeat match goal with E : ?s = _ :> R |- _ => is_var s; subst s end;
  repeat match goal with C : 0 < INR (length ?l) |- _ =>
    let n := fresh "n" in set (n := INR (length l)) in *; clearbody n end;
  rs_forget_extrema.

(** ** What is left: an equation of numbers *)

(** Roots, logarithms and exponentials of equal arguments become one. *)
Ltac rs_same :=
  repeat match goal with
  | |- context [sqrt ?a] =>
      match goal with |- context [sqrt ?b] =>
        tryif constr_eq a b then fail else replace (sqrt a) with (sqrt b) by (apply f_equal; rs_field) end
  | |- context [ln ?a] =>
      match goal with |- context [ln ?b] =>
        tryif constr_eq a b then fail else replace (ln a) with (ln b) by (apply f_equal; rs_field) end
  | |- context [exp ?a] =>
      match goal with |- context [exp ?b] =>
        tryif constr_eq a b then fail else replace (exp a) with (exp b) by (apply f_equal; rs_field) end
  end.

Ltac rs_near := match goal with H : ?s <> 0 |- ?t <> 0 => intro; apply H; lra end.
Ltac rs_equal := first [rs_field | solve [field; repeat split; first [rs_nonzero | rs_near]]].

(** What the definition divides by is not 0, so what equals it, or differs by a factor, is not 0 either. *)
Ltac rs_zero s t Z := first
  [ replace s with t by rs_equal; exact Z
  | match goal with C : 0 < ?n |- _ => first
      [ replace s with (t * n) by rs_equal; rewrite Z; ring | replace s with (t * / n) by rs_equal; rewrite Z; ring ] end
  | lra | field_simplify_eq; [first [lra | nra] | rs_side] | rewrite Z; ring].
Ltac rs_divisor :=
  match goal with
  | H : ?s <> 0 |- ?t <> 0 => let Z := fresh in intro Z; apply H; clear H; rs_zero s t Z
  | H : 0 < ?s |- ?t <> 0 =>
      let Z := fresh in intro Z; apply (Rlt_irrefl 0); replace 0 with s at 2; [exact H |]; clear H; rs_zero s t Z
  | H : 0 < ?s |- 0 < ?t => replace t with s by rs_equal; exact H
  | H : 0 <= ?s |- 0 <= ?t => replace t with s by rs_equal; exact H
  | H : 0 < ?s |- 0 <= ?t => replace t with s by rs_equal; left; exact H
  | H : 0 <= ?s, C : 0 < ?n |- 0 <= ?t =>
      replace t with (s * / n) by rs_equal; apply Rmult_le_pos; [exact H | left; now apply Rinv_0_lt_compat]
  end.

Ltac rs_quotient := field; repeat split; first [rs_nonzero | rs_divisor].

(** The inverse of a root is one number: that the root is not 0 need not be known. *)
Ltac rs_roots := rewrite ?rs_inv_pow; repeat match goal with |- context [/ sqrt ?a] => generalize (/ sqrt a); intro end.

Lemma rs_root_square : forall x, sqrt (x ^ 2) = Rabs x.
Proof. intros. rewrite <- Rsqr_pow2. apply sqrt_Rsqr_abs. Qed.

(** A product of roots is a root. *)
Ltac rs_join :=
  rewrite <- ?sqrt_inv;
  repeat match goal with
  | |- context [sqrt ?a * sqrt ?b] =>
      first [rewrite <- (sqrt_mult_alt a b) by first [rs_positive | rs_divisor]
            | rewrite (Rmult_comm (sqrt a) (sqrt b)), <- (sqrt_mult_alt b a) by first [rs_positive | rs_divisor]]
  end.

Ltac rs_maxima :=
  match goal with |- Rmax ?a ?b = Rmax ?c ?d =>
    first [solve [apply f_equal2; rs_equal] | rewrite (Rmax_comm a b); solve [apply f_equal2; rs_equal]] end.

Ltac rs_cases := repeat (rs_case; cbn [andb orb negb] in * ); try discriminate; try congruence; try lra.

(** The cheap and the usual first: a tactic that cannot close its goal costs the most. *)
Ltac rs_usual :=
  lazymatch goal with
  | |- _ = _ :> R => first
      [ rs_field
      | solve [progress rs_exp; rs_field]
      | solve [rs_quotient]
      | solve [rs_log; first [rs_field | progress rs_exp; first [rs_field | rs_quotient]]]
      | solve [rs_maxima]
      | solve [rs_same; rs_roots; first [rs_field | rs_quotient]] ]
  | |- _ => first [solve [redalg_sign] | solve [rs_divisor]]
  end.

(** *** Units: sums in units of a scale, beside a definition that has none

    What the form divides by or takes roots of is what the definition does, over the square of the scale, or of it times
    the count. *)

Definition rs_unit (k : R) : Prop := 0 < k.
Ltac redalg_unit k := assert (rs_unit k) by (unfold rs_unit; rs_positive).

Lemma rs_unit_square : forall k, rs_unit k -> 0 < k ^ 2.
Proof. intros k K. now apply pow_lt. Qed.

Lemma rs_unit_root : forall k a b, rs_unit k -> a * k ^ 2 = b -> sqrt a = sqrt b * / k.
Proof.
  intros k a b K <-. unfold rs_unit in K. rewrite (Rmult_comm a), sqrt_mult_alt by (apply pow_le; lra).
  rewrite sqrt_pow2 by lra. field. lra.
Qed.

Lemma rs_unit_root_count : forall n k a b, 0 < n -> rs_unit k -> a * (n * k ^ 2) = b -> sqrt a = sqrt b * / sqrt n * / k.
Proof.
  intros n k a b P K <-. pose proof (rs_unit_square K). unfold rs_unit in K.
  rewrite (Rmult_comm a), sqrt_mult_alt, sqrt_mult_alt, sqrt_pow2 by (try apply Rmult_le_pos; lra).
  field. split; [lra | apply Rgt_not_eq; now apply sqrt_lt_R0].
Qed.

Lemma rs_unit_nonzero : forall u t s, s <> 0 -> t * u = s -> t <> 0.
Proof. intros u t s H <- E. apply H. rewrite E. ring. Qed.

Lemma rs_unit_nonnegative : forall u t s, 0 < u -> 0 <= s -> t * u = s -> 0 <= t.
Proof. intros u t s U H <-. apply (Rmult_le_reg_r u); [assumption |]. now rewrite Rmult_0_l. Qed.

Lemma rs_unit_positive : forall u t s, 0 < u -> 0 < s -> t * u = s -> 0 < t.
Proof. intros u t s U H <-. apply (Rmult_lt_reg_r u); [assumption |]. now rewrite Rmult_0_l. Qed.

Ltac rs_unit_roots :=
  repeat match goal with K : rs_unit ?k |- context [sqrt ?a] =>
    match goal with |- context [sqrt ?b] =>
      tryif constr_eq a b then fail else
      let E := fresh in
      first
        [ assert (E : a * k ^ 2 = b) by rs_equal; rewrite (rs_unit_root K E); clear E
        | match goal with C : 0 < ?n |- _ =>
            assert (E : a * (n * k ^ 2) = b) by rs_equal; rewrite (rs_unit_root_count C K E); clear E end ] end end.

(** [by_ u U] for what a quantity is multiplied by, which is positive by U. *)
Ltac rs_by_unit by_ :=
  match goal with K : rs_unit ?k |- _ => first
    [ by_ (k ^ 2) (rs_unit_square K)
    | match goal with C : 0 < ?n |- _ => by_ (n * k ^ 2) (Rmult_lt_0_compat n (k ^ 2) C (rs_unit_square K)) end ] end.

Ltac rs_scaled :=
  lazymatch goal with
  | |- _ = _ :> R =>
      progress rs_unit_roots;
      first [rs_field | rewrite ?rs_inv_pow, ?Rinv_mult, ?Rinv_inv; rs_roots; first [rs_field | rs_quotient]]
  | |- _ <> 0 => match goal with H : ?s <> 0 |- _ => rs_by_unit ltac:(fun u U => apply (@rs_unit_nonzero u _ s H); rs_equal)
      | H : 0 < ?s |- _ => lazymatch s with context [Rplus] =>
          rs_by_unit ltac:(fun u U => apply (@rs_unit_nonzero u _ s (Rgt_not_eq _ _ H)); rs_equal) end end
  | |- 0 <= _ => match goal with H : 0 <= ?s |- _ => rs_by_unit ltac:(fun u U => apply (@rs_unit_nonnegative u _ s U H); rs_equal)
      | H : 0 < ?s |- _ => lazymatch s with context [Rplus] =>
          rs_by_unit ltac:(fun u U => apply (@rs_unit_nonnegative u _ s U (Rlt_le _ _ H)); rs_equal) end end
  | |- 0 < _ => match goal with H : 0 < ?s |- _ => rs_by_unit ltac:(fun u U => apply (@rs_unit_positive u _ s U H); rs_equal) end
  end.

Ltac redalg_finish :=
  intros; rs_at; rs_forget_extrema;
  first
    [ rs_usual
    | lazymatch goal with _ : rs_unit _ |- _ => rs_scaled end
    | redalg_solve
    | solve [rs_log; rs_same; first [rs_field | lra | rs_quotient | progress rs_exp; first [rs_field | rs_quotient]]]
    | solve [rs_join; rs_same; first [reflexivity | rs_field | rs_quotient]]
    | solve [progress rs_exp; rs_quotient]
    | solve [rewrite rs_root_square; redalg_solve]
    | solve [progress rs_cases; first [rs_field | rs_positive | rs_nonzero | rs_divisor | rs_quotient]] ].
