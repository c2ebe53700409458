(** * The slopes of functions: one lemma for each row of the table of functions that has one.

   Names are those of [redalg.proofs.derivatives.rules]; functions that the library lacks are written as the table does. *)

From Coq Require Import Reals ZArith Lra Psatz Lia.
From Redalg Require Import Sums Signs Derivatives.
Open Scope R_scope.

Local Notation D := derivable_pt_lim.

Lemma d_exp : forall x, D exp x (exp x).
Proof. exact derivable_pt_lim_exp. Qed.

Lemma D_scaled : forall c x, D (fun t => c * t) x c.
Proof. intros. eapply D_value; [apply (d_mul (fun _ => c) (fun t => t)); [apply D_const | apply D_id] | ring]. Qed.

Lemma d_exp2 : forall x, D (fun t => exp (t * ln 2)) x (ln 2 * exp (x * ln 2)).
Proof.
  intros. eapply D_value; [apply (D_chain exp (fun t => t * ln 2)); [| apply d_exp] |].
  - apply derivable_pt_lim_ext with (f := fun t => ln 2 * t); [intros; ring | apply D_scaled].
  - ring.
Qed.

Lemma d_expm1 : forall x, D (fun t => exp t + - 1) x (exp x + - 1 + 1).
Proof. intros. eapply D_value; [apply (d_add exp (fun _ => - 1)); [apply d_exp | apply D_const] | ring]. Qed.

Lemma d_log : forall x, 0 < x -> D ln x (/ x).
Proof. exact derivable_pt_lim_ln. Qed.

Lemma ln2_neq : ln 2 <> 0.
Proof. apply Rgt_not_eq. rewrite <- ln_1. apply ln_increasing; lra. Qed.

Lemma d_log2 : forall x, 0 < x -> D (fun t => ln t * / ln 2) x (/ (x * ln 2)).
Proof.
  intros x H. eapply D_value; [apply (d_mul ln (fun _ => / ln 2)); [now apply d_log | apply D_const] |].
  field. split; [apply ln2_neq | lra].
Qed.

Lemma d_log1p : forall x, 0 < x + 1 -> D (fun t => ln (t + 1)) x (/ (x + 1)).
Proof.
  intros x H. eapply D_value; [apply (D_chain ln (fun t => t + 1)); [| now apply d_log] |].
  - apply (d_add (fun t => t) (fun _ => 1)); [apply D_id | apply D_const].
  - ring.
Qed.

Lemma one_plus_exp : forall x, 0 < exp x + 1.
Proof. intros. pose proof (exp_pos x). lra. Qed.

Lemma d_softplus : forall x, D (fun t => ln (exp t + 1)) x (sigmoid x).
Proof.
  intros x. eapply D_value; [apply (D_chain ln (fun t => exp t + 1)); [| apply d_log, one_plus_exp] |].
  - apply (d_add exp (fun _ => 1)); [apply d_exp | apply D_const].
  - unfold sigmoid. rewrite exp_Ropp. pose proof (exp_pos x). pose proof (one_plus_exp x). field. lra.
Qed.

Lemma d_sigmoid : forall x, D sigmoid x (sigmoid x + - sigmoid x * sigmoid x).
Proof.
  intros x. unfold sigmoid at 1. pose proof (exp_pos (- x)).
  eapply D_value; [apply (D_chain (fun t => / t) (fun t => 1 + exp (- t))); [| apply d_inverse; lra] |].
  - apply (d_add (fun _ => 1) (fun t => exp (- t))); [apply D_const |].
    apply (D_chain exp (fun t => - t)); [apply D_opp, D_id | apply d_exp].
  - unfold sigmoid. field. lra.
Qed.

Lemma cosh_pos : forall x, 0 < cosh x.
Proof. intros. unfold cosh. pose proof (exp_pos x). pose proof (exp_pos (- x)). lra. Qed.

Lemma d_sinh : forall x, D sinh x (cosh x).
Proof. exact derivable_pt_lim_sinh. Qed.

Lemma d_cosh : forall x, D cosh x (sinh x).
Proof. exact derivable_pt_lim_cosh. Qed.

Lemma d_tanh : forall x, D tanh x (1 + - tanh x * tanh x).
Proof.
  intros x. pose proof (cosh_pos x). unfold tanh at 1. unfold Rdiv at 1.
  eapply D_value; [apply (d_mul sinh (fun t => / cosh t)); [apply d_sinh |] |].
  - apply (D_chain (fun t => / t) cosh); [apply d_cosh | apply d_inverse; lra].
  - unfold tanh. field. lra.
Qed.

Lemma d_sin : forall x, D sin x (cos x).
Proof. exact derivable_pt_lim_sin. Qed.

Lemma d_cos : forall x, D cos x (- sin x).
Proof. exact derivable_pt_lim_cos. Qed.

Lemma d_tan : forall x, cos x <> 0 -> D tan x (1 + tan x * tan x).
Proof.
  intros x H. unfold tan at 1. unfold Rdiv at 1.
  eapply D_value; [apply (d_mul sin (fun t => / cos t)); [apply d_sin |] |].
  - apply (D_chain (fun t => / t) cos); [apply d_cos | now apply d_inverse].
  - unfold tan. field. exact H.
Qed.

Lemma d_atan : forall x, D atan x (/ (1 + x * x)).
Proof. intros. eapply D_value; [apply derivable_pt_lim_atan |]. f_equal. ring. Qed.

Lemma d_asinh : forall x, D arcsinh x (/ sqrt (1 + x * x)).
Proof. intros. eapply D_value; [apply derivable_pt_lim_arcsinh |]. do 2 f_equal. ring. Qed.

Lemma d_atanh : forall x, -1 < x < 1 -> D (fun t => / 2 * (ln (1 + t) - ln (1 - t))) x (/ (1 + - x * x)).
Proof.
  intros x H. eapply D_value.
  - apply (d_mul (fun _ => / 2) (fun t => ln (1 + t) - ln (1 - t))); [apply D_const |].
    apply (derivable_pt_lim_minus (fun t => ln (1 + t)) (fun t => ln (1 - t))).
    + apply (D_chain ln (fun t => 1 + t)); [apply (d_add (fun _ => 1) (fun t => t)); [apply D_const | apply D_id] |].
      apply d_log. lra.
    + apply (D_chain ln (fun t => 1 - t)); [| apply d_log; lra].
      apply (derivable_pt_lim_minus (fun _ => 1) (fun t => t)); [apply D_const | apply D_id].
  - simpl. field. split; [nra | split; lra].
Qed.

(** *** Functions with kinks, away from them *)

Lemma d_abs : forall x, (0 < x -> D Rabs x 1) /\ (x < 0 -> D Rabs x (- 1)).
Proof. intros. split; intros; [now apply Rabs_derive_1 |]. eapply D_value; [now apply Rabs_derive_2 | lra]. Qed.

Lemma below_stays : forall x, x < 0 -> forall z, Rabs (z - x) < - x -> z < 0.
Proof. intros x H z Z. apply Rabs_def2 in Z. lra. Qed.

Lemma above_stays : forall x, 0 < x -> forall z, Rabs (z - x) < x -> 0 < z.
Proof. intros x H z Z. apply Rabs_def2 in Z. lra. Qed.

Lemma d_relu : forall x, (0 < x -> D relu x 1) /\ (x < 0 -> D relu x 0).
Proof.
  intros x. split; intros H.
  - apply D_locally with (f := fun t => t) (e := x); [assumption | | apply D_id].
    intros z Z. unfold relu. apply Rmax_right. left. now apply above_stays with x.
  - apply D_locally with (f := fun _ => 0) (e := - x); [lra | | apply D_const].
    intros z Z. unfold relu. apply Rmax_left. left. now apply below_stays with x.
Qed.

Definition sign (x : R) : R := if Rltb 0 x then 1 else if Rltb x 0 then - 1 else 0.

Lemma d_sign : forall x, x <> 0 -> D sign x 0.
Proof.
  intros x H. destruct (Rtotal_order x 0) as [N | [E | P]]; [| contradiction |].
  - apply D_locally with (f := fun _ => - 1) (e := - x); [lra | | apply D_const].
    intros z Z. assert (z < 0) by now apply below_stays with x. unfold sign, Rltb.
    destruct (Rlt_dec 0 z); [lra |]. destruct (Rlt_dec z 0); [reflexivity | lra].
  - apply D_locally with (f := fun _ => 1) (e := x); [lra | | apply D_const].
    intros z Z. assert (0 < z) by now apply above_stays with x. unfold sign, Rltb. destruct (Rlt_dec 0 z); [auto | lra].
Qed.

(** A function that is constant between whole numbers has the slope 0 there. *)
Lemma d_step : forall (f : R -> R) (n : Z) c x, IZR n < x < IZR n + 1 ->
  (forall z, IZR n < z < IZR n + 1 -> f z = c) -> D f x 0.
Proof.
  intros f n c x H Hf. apply derivable_pt_lim_locally_ext with (f := fun _ => c) (a := IZR n) (b := IZR n + 1).
  - lra.
  - intros z Z. symmetry. now apply Hf.
  - apply D_const.
Qed.

Definition floor (x : R) : R := IZR (Int_part x).
Definition ceil (x : R) : R := - floor (- x).

Lemma floor_between : forall (n : Z) z, IZR n < z < IZR n + 1 -> floor z = IZR n.
Proof.
  intros n z [L H]. unfold floor. f_equal. unfold Int_part.
  rewrite <- (tech_up z (n + 1)%Z); [lia | rewrite plus_IZR; lra | rewrite plus_IZR; lra].
Qed.

Lemma d_floor : forall (n : Z) x, IZR n < x < IZR n + 1 -> D floor x 0.
Proof. intros n x H. apply d_step with (n := n) (c := IZR n); [exact H | apply floor_between]. Qed.

Lemma d_ceil : forall (n : Z) x, IZR n < x < IZR n + 1 -> D ceil x 0.
Proof.
  intros n x H. apply d_step with (n := n) (c := IZR n + 1); [exact H |]. intros z [L G]. unfold ceil.
  rewrite (floor_between (- n - 1)%Z); rewrite minus_IZR, opp_IZR; lra.
Qed.
