(** * Words of printed obligations that the library lacks, and the signs of expressions: [0 < e], [0 <= e], [e <> 0]. *)

From Coq Require Import List Reals Lra Psatz.
From Redalg Require Import Sums.
Open Scope R_scope.

(** ** Words of the language that the library lacks *)

Definition relu (x : R) : R := Rmax 0 x.
Definition sigmoid (x : R) : R := / (1 + exp (- x)).
Definition log1p (x : R) : R := ln (1 + x).
Definition Rltb (a b : R) : bool := if Rlt_dec a b then true else false.
Definition Rleb (a b : R) : bool := if Rle_dec a b then true else false.
Definition Reqb (a b : R) : bool := if Req_EM_T a b then true else false.
Lemma Rltb_true : forall a b, Rltb a b = true -> a < b.
Proof. unfold Rltb. intros a b. destruct Rlt_dec; [auto | discriminate]. Qed.
Lemma Rltb_false : forall a b, Rltb a b = false -> b <= a.
Proof. unfold Rltb. intros a b. destruct Rlt_dec; [discriminate | lra]. Qed.
Lemma Rleb_true : forall a b, Rleb a b = true -> a <= b.
Proof. unfold Rleb. intros a b. destruct Rle_dec; [auto | discriminate]. Qed.
Lemma Rleb_false : forall a b, Rleb a b = false -> b < a.
Proof. unfold Rleb. intros a b. destruct Rle_dec; [discriminate | lra]. Qed.
Lemma Reqb_true : forall a b, Reqb a b = true -> a = b.
Proof. unfold Reqb. intros a b. destruct Req_EM_T; [auto | discriminate]. Qed.
Lemma Reqb_false : forall a b, Reqb a b = false -> a <> b.
Proof. unfold Reqb. intros a b. destruct Req_EM_T; [discriminate | auto]. Qed.

Definition iverson (b : bool) : R := if b then 1 else 0.

Ltac rs_unfold := unfold relu, sigmoid, log1p, iverson, Rpower, Rsqr in *.

(** ** Signs: goals [0 < e], [0 <= e], [e <> 0] *)

Lemma rs_pow_pos_even : forall x : R, 0 <= x ^ 2.
Proof. intros. nra. Qed.

Lemma rs_exp_neq : forall x, exp x <> 0.
Proof. intros. apply Rgt_not_eq, exp_pos. Qed.

Lemma rs_mul_neq : forall a b : R, a <> 0 -> b <> 0 -> a * b <> 0.
Proof. intros. now apply Rmult_integral_contrapositive_currified. Qed.

(** The exponential of one monomial, as an atom. *)
Definition rs_e (x : R) : R := exp x.
Lemma rs_e_pos : forall x, 0 < rs_e x. Proof. exact exp_pos. Qed.
Lemma rs_e_neq : forall x, rs_e x <> 0. Proof. exact rs_exp_neq. Qed.

Ltac rs_positive :=
  first
    [ assumption
    | apply exp_pos
    | apply rs_e_pos
    | lra
    | lazymatch goal with
      | |- 0 < _ * _ => apply Rmult_lt_0_compat; rs_positive
      | |- 0 < _ / _ => apply Rdiv_lt_0_compat; rs_positive
      | |- 0 < / _ => apply Rinv_0_lt_compat; rs_positive
      | |- 0 < _ + _ => first [apply Rplus_lt_le_0_compat; rs_positive | apply Rplus_le_lt_0_compat; rs_positive]
      | |- 0 < _ ^ _ => apply pow_lt; rs_positive
      | |- 0 < sqrt _ => apply sqrt_lt_R0; rs_positive
      | |- 0 < Rmax _ _ => apply Rmax_case; rs_positive
      | |- 0 < Rabs _ => apply Rabs_pos_lt; rs_nonzero
      | |- 0 <= exp _ => left; apply exp_pos
      | |- 0 <= Rabs _ => apply Rabs_pos
      | |- 0 <= sqrt _ => apply sqrt_pos
      | |- 0 <= ?a * ?a => apply Rle_0_sqr
      | |- 0 <= _ * _ => apply Rmult_le_pos; rs_positive
      | |- 0 <= _ + _ => apply Rplus_le_le_0_compat; rs_positive
      | |- 0 <= _ / _ => apply Rmult_le_pos; [rs_positive | left; apply Rinv_0_lt_compat; rs_positive]
      | |- 0 <= / _ => left; apply Rinv_0_lt_compat; rs_positive
      | |- 0 <= _ ^ 2 => apply rs_pow_pos_even
      | |- 0 <= _ ^ _ => apply pow_le; rs_positive
      | |- 0 <= Rmax _ _ => eapply Rle_trans; [| apply Rmax_l]; rs_positive
      | |- 0 <= Rmax _ _ => eapply Rle_trans; [| apply Rmax_r]; rs_positive
      | |- 0 <= Rmin _ _ => apply Rmin_case; rs_positive
      | |- 0 <= lsum _ _ => apply lsum_nonneg; intros; rs_positive
      | |- _ > _ => apply Rlt_gt; rs_positive
      | |- _ >= _ => apply Rle_ge; rs_positive
      end
    | nra ]
with rs_nonzero :=
  first
    [ assumption
    | apply rs_exp_neq
    | apply rs_e_neq
    | apply not_eq_sym; assumption
    | lra
    | lazymatch goal with
      | |- _ * _ <> 0 => apply rs_mul_neq; rs_nonzero
      | |- _ / _ <> 0 => apply rs_mul_neq; [| apply Rinv_neq_0_compat]; rs_nonzero
      | |- / _ <> 0 => apply Rinv_neq_0_compat; rs_nonzero
      | |- _ ^ _ <> 0 => apply pow_nonzero; rs_nonzero
      | |- - _ <> 0 => apply Ropp_neq_0_compat; rs_nonzero
      | |- sqrt _ <> 0 => apply Rgt_not_eq; rs_positive
      end
    | apply Rgt_not_eq; apply Rlt_gt; solve [rs_positive]
    | apply Rlt_not_eq; apply Rplus_lt_reg_l with (r := 1); lra
    | intro; nra ].

Ltac rs_side := repeat split; first [rs_nonzero | rs_positive].
