(** * Finite sums of reals over lists, as a definition writes them: [sum[j](f x_j)] is [lsum f xs]. *)

From Coq Require Import List Permutation Reals Lra.
From Redalg Require Import Fold.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

Definition lsum (A : Type) (f : A -> R) (xs : list A) : R := fold_right (fun x s => f x + s) 0 xs.

Section Sums.
  Variable A : Type.
  Implicit Types (f g : A -> R) (xs ys : list A).

  Lemma lsum_nil : forall f, lsum f [] = 0.
  Proof. reflexivity. Qed.

  Lemma lsum_cons : forall f x xs, lsum f (x :: xs) = f x + lsum f xs.
  Proof. reflexivity. Qed.

  Lemma lsum_app : forall f xs ys, lsum f (xs ++ ys) = lsum f xs + lsum f ys.
  Proof. induction xs as [|x xs IH]; intros ys; simpl; [ring | rewrite IH; ring]. Qed.

  Lemma lsum_ext_in : forall f g xs, (forall x, In x xs -> f x = g x) -> lsum f xs = lsum g xs.
  Proof. induction xs as [|x xs IH]; simpl; intros H; auto. rewrite H, IH; auto. Qed.

  Lemma lsum_ext : forall f g xs, (forall x, f x = g x) -> lsum f xs = lsum g xs.
  Proof. intros. now apply lsum_ext_in. Qed.

  Lemma lsum_plus : forall f g xs, lsum (fun x => f x + g x) xs = lsum f xs + lsum g xs.
  Proof. induction xs as [|x xs IH]; simpl; [ring | rewrite IH; ring]. Qed.

  Lemma lsum_minus : forall f g xs, lsum (fun x => f x - g x) xs = lsum f xs - lsum g xs.
  Proof. induction xs as [|x xs IH]; simpl; [ring | rewrite IH; ring]. Qed.

  Lemma lsum_opp : forall f xs, lsum (fun x => - f x) xs = - lsum f xs.
  Proof. induction xs as [|x xs IH]; simpl; [ring | rewrite IH; ring]. Qed.

  Lemma lsum_scal : forall c f xs, lsum (fun x => c * f x) xs = c * lsum f xs.
  Proof. induction xs as [|x xs IH]; simpl; [ring | rewrite IH; ring]. Qed.

  Lemma lsum_scal_r : forall c f xs, lsum (fun x => f x * c) xs = lsum f xs * c.
  Proof. induction xs as [|x xs IH]; simpl; [ring | rewrite IH; ring]. Qed.

  Lemma lsum_const : forall c xs, lsum (fun _ => c) xs = INR (length xs) * c.
  Proof.
    induction xs as [|x xs IH]; [simpl; ring |].
    rewrite lsum_cons, IH. cbn [length]. rewrite S_INR. ring.
  Qed.

  Lemma lsum_zero : forall xs, lsum (fun _ => 0) xs = 0.
  Proof. intros. rewrite lsum_const. ring. Qed.

  Lemma lsum_permutation : forall f xs ys, Permutation xs ys -> lsum f xs = lsum f ys.
  Proof. intros f xs ys H; induction H; simpl; [reflexivity | now rewrite IHPermutation | ring | congruence]. Qed.

  Lemma lsum_map : forall (B : Type) (h : B -> A) f (l : list B), lsum f (map h l) = lsum (fun b => f (h b)) l.
  Proof. induction l as [|b l IH]; simpl; auto. now rewrite IH. Qed.

  Lemma lsum_nonneg : forall f xs, (forall x, In x xs -> 0 <= f x) -> 0 <= lsum f xs.
  Proof.
    induction xs as [|x xs IH]; simpl; intros H; [lra |].
    pose proof (H x (or_introl eq_refl)). assert (0 <= lsum f xs) by auto. unfold lsum in *. lra.
  Qed.

  Lemma lsum_pos : forall f xs, xs <> [] -> (forall x, In x xs -> 0 < f x) -> 0 < lsum f xs.
  Proof.
    intros f [|x xs] N H; [congruence |]. rewrite lsum_cons.
    assert (0 <= lsum f xs) by (apply lsum_nonneg; intros y Hy; left; apply H; now right).
    pose proof (H x (or_introl eq_refl)). lra.
  Qed.

  (** The list reduction of the semigroup (R, +) is the sum. *)
  Lemma lsum_reduce : forall f xs, reduce Rplus (map f xs) = match xs with [] => None | _ => Some (lsum f xs) end.
  Proof.
    induction xs as [|x xs IH]; [reflexivity |]. cbn [map reduce]. rewrite IH.
    destruct xs; simpl; f_equal; ring.
  Qed.

  Lemma lsum_reduced : forall f xs, xs <> [] -> reduce Rplus (map f xs) = Some (lsum f xs).
  Proof. intros f xs N. rewrite lsum_reduce. now destruct xs. Qed.
End Sums.

(** A contraction swaps with the stream: Σ_j Σ_d = Σ_d Σ_j. *)
Lemma lsum_swap : forall (A B : Type) (f : A -> B -> R) xs ys,
  lsum (fun x => lsum (f x) ys) xs = lsum (fun y => lsum (fun x => f x y) xs) ys.
Proof.
  induction xs as [|x xs IH]; intros ys.
  - cbn. now rewrite lsum_zero.
  - rewrite lsum_cons, IH, <- lsum_plus. reflexivity.
Qed.

Lemma INR_length_pos : forall (A : Type) (xs : list A), xs <> [] -> 0 < INR (length xs).
Proof. intros A [|x xs] H; [congruence |]. apply lt_0_INR. simpl. apply Nat.lt_0_succ. Qed.

Lemma INR_length_app : forall (A : Type) (xs ys : list A), INR (length (xs ++ ys)) = INR (length xs) + INR (length ys).
Proof. intros. now rewrite app_length, plus_INR. Qed.
