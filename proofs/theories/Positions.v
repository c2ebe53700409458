(** * What order slots are over a stream: extrema, truth values, first positions and top-k lists.

    Each is a homomorphism: of one element, of two streams one after the other, and (first positions apart) of a stream
    in any order. [largmax] is the lowest position of the largest element, counted from the start of the stream. *)

From Coq Require Import List Permutation Reals Lra Bool.
From Redalg Require Import Fold Sums Order TopK Signs Printed.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

Section Folds.
  Variables (A V : Type) (zero : V) (op : V -> V -> V) (f : A -> V).
  Hypothesis assoc : forall a b c, op (op a b) c = op a (op b c).

  Lemma lfold_one : forall x, lfold zero op f [x] = f x.
  Proof. reflexivity. Qed.

  Lemma lfold_app : forall xs ys, xs <> [] -> ys <> [] -> lfold zero op f (xs ++ ys) = op (lfold zero op f xs) (lfold zero op f ys).
  Proof.
    intros xs ys Nx Ny. unfold lfold at 1. rewrite map_app, reduce_app by exact assoc.
    now rewrite (lfold_some zero op f Nx), (lfold_some zero op f Ny).
  Qed.

  Hypothesis comm : forall a b, op a b = op b a.
  Lemma lfold_order : forall xs ys, Permutation xs ys -> lfold zero op f xs = lfold zero op f ys.
  Proof. intros xs ys P. unfold lfold. now rewrite (reduce_permutation op assoc comm (Permutation_map f P)). Qed.
End Folds.

Lemma orb_assoc' : forall a b c, orb (orb a b) c = orb a (orb b c). Proof. now intros [] [] []. Qed.
Lemma andb_assoc' : forall a b c, andb (andb a b) c = andb a (andb b c). Proof. now intros [] [] []. Qed.

(** ** The first position of a maximum *)

Definition place : Type := (R * (nat * nat))%type.

(** (value, position, length): on a tie the left one stays; positions on the right are counted on. *)
Definition pick_place (a b : place) : place :=
  (Rmax (fst a) (fst b),
   (if Rltb (fst a) (fst b) then (snd (snd a) + fst (snd b))%nat else fst (snd a), (snd (snd a) + snd (snd b))%nat)).

Fixpoint first_at (A : Type) (p : A -> bool) (xs : list A) : nat :=
  match xs with [] => 0 | x :: rest => if p x then 0 else S (first_at p rest) end.

Section Largest.
  Variables (A : Type).
  Definition largmax (f : A -> R) (xs : list A) : nat := first_at (fun x => Reqb (f x) (lmax f xs)) xs.
  Definition largmin (f : A -> R) (xs : list A) : nat := largmax (fun x => - f x) xs.
  Definition largest (f : A -> R) (xs : list A) : place := (lmax f xs, (largmax f xs, length xs)).

  Lemma lmax_app : forall (f : A -> R) xs ys, xs <> [] -> ys <> [] -> lmax f (xs ++ ys) = Rmax (lmax f xs) (lmax f ys).
  Proof. intros. apply lfold_app; auto using Rmax_assoc'. Qed.

  Lemma first_at_app : forall (p : A -> bool) xs ys,
    first_at p (xs ++ ys) = if existsb p xs then first_at p xs else (length xs + first_at p ys)%nat.
  Proof.
    induction xs as [|x xs IH]; intros ys; [reflexivity |]. cbn. destruct (p x); [reflexivity |]. cbn. rewrite IH.
    now destruct (existsb p xs).
  Qed.

  Lemma first_at_ext : forall (p q : A -> bool) xs, (forall x, In x xs -> p x = q x) -> first_at p xs = first_at q xs.
  Proof. induction xs as [|x xs IH]; cbn; intros H; auto. rewrite H, IH; auto. Qed.

  Lemma reqb_same : forall a, Reqb a a = true.
  Proof. intros. unfold Reqb. destruct Req_EM_T; auto. Qed.

  Lemma reqb_less : forall a b, a < b -> Reqb a b = false.
  Proof. intros. unfold Reqb. destruct Req_EM_T; auto. lra. Qed.

  Theorem largest_app : forall f xs ys, xs <> [] -> ys <> [] -> largest f (xs ++ ys) = pick_place (largest f xs) (largest f ys).
  Proof.
    intros f xs ys Nx Ny. unfold largest, pick_place, largmax. cbn [fst snd].
    rewrite lmax_app, app_length by assumption. do 2 f_equal. rewrite first_at_app. unfold Rltb.
    destruct (Rlt_dec (lmax f xs) (lmax f ys)) as [L|L].
    - rewrite Rmax_right by lra. replace (existsb _ xs) with false; [reflexivity |].
      symmetry. apply not_true_is_false. intros E. apply existsb_exists in E. destruct E as (x & I & E).
      pose proof (lmax_upper f xs x I). rewrite reqb_less in E by lra. discriminate.
    - rewrite Rmax_left by lra. destruct (lmax_attained f Nx) as (x & I & E).
      replace (existsb _ xs) with true; [reflexivity |].
      symmetry. apply existsb_exists. exists x. split; auto. rewrite E. apply reqb_same.
  Qed.

  Lemma largest_one : forall f x, largest f [x] = (f x, (0%nat, 1%nat)).
  Proof. intros. unfold largest, largmax, lmax, lfold. cbn. now rewrite reqb_same. Qed.

  (** A strictly increasing map leaves the position alone. *)
  Theorem largmax_strict : forall (phi : R -> R) f xs, (forall u v, u < v -> phi u < phi v) ->
    largmax (fun x => phi (f x)) xs = largmax f xs.
  Proof.
    intros phi f xs H. destruct xs as [|y ys] eqn:Exs; [reflexivity |]. rewrite <- Exs.
    assert (N : xs <> []) by (subst; discriminate). unfold largmax.
    assert (M : forall u v, u <= v -> phi u <= phi v) by (intros u v [L|E]; [left; now apply H | subst; apply Rle_refl]).
    rewrite (lmax_monotone phi f N M).
    apply first_at_ext. intros x I. destruct (lmax_upper f xs x I) as [L|E].
    - rewrite !reqb_less; auto.
    - rewrite E, !reqb_same. reflexivity.
  Qed.
End Largest.

(** ** Lists of the k largest, by value and then by position; elements are their positions *)

Definition ltopk (k : nat) (f : nat -> R) (js : list nat) : list entry := topk k (fun j => (f j, j)) js.
Definition top_value (p : nat) (l : list entry) : R := fst (nth p l (0, 0%nat)).
Definition top_index (p : nat) (l : list entry) : R := INR (snd (nth p l (0, 0%nat))).

(** ** All at once *)

Ltac redalg_one := intros; first [reflexivity | apply largest_one].
Ltac redalg_app :=
  intros; first
    [ apply lfold_app; auto using Rmax_assoc', Rmin_assoc', Rmult_assoc, orb_assoc', andb_assoc'
    | now apply largest_app
    | apply topk_app ].
Ltac redalg_order :=
  intros; first
    [ apply lfold_order; auto using Rmax_assoc', Rmin_assoc', Rmult_assoc, orb_assoc', andb_assoc', Rmax_comm, Rmin_comm,
        Rmult_comm, orb_comm, andb_comm
    | apply topk_permutation; assumption ].
