(** * Slots held as averages: [u i = (sum[j](phi x_j A i)) / n], whose sums may overflow where their averages do not.

    [average_bracketing]: the weighted mean a + (b - a)·n_b/(n_a + n_b) of two moved states represents both streams,
    so every tree gives the averages of the whole stream; [average_value]: n·Σ H_k·u_k is the definition. *)

From Coq Require Import List Permutation Reals Lra FunctionalExtensionality.
From Redalg Require Import Fold Sums Transport.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

(** O4 of the kind "mean": associative and commutative, the counts added beside it. *)
Definition mean (a b : R * R) : R * R := (fst a + (fst b - fst a) * (snd b / (snd a + snd b)), snd a + snd b).

Lemma mean_assoc : forall a b c, 0 < snd a -> 0 < snd b -> 0 < snd c -> mean (mean a b) c = mean a (mean b c).
Proof. intros [a k] [b l] [c m]; cbn; intros. unfold mean. cbn. f_equal; [field; lra | ring]. Qed.

Lemma mean_comm : forall a b, 0 < snd a -> 0 < snd b -> mean a b = mean b a.
Proof. intros [a k] [b l]; cbn; intros. unfold mean. cbn. f_equal; [field; lra | ring]. Qed.

Section Average.
  Variables (E An I : Type) (phi : E -> An -> I -> R) (T : An -> An -> (I -> R) -> I -> R).
  Variables (holds : E -> An -> Prop) (moves : An -> An -> Prop).
  Hypothesis laws : moving (@fplus I) phi T holds moves.
  Hypothesis T_scale : forall A A' c u i, T A A' (fun k => c * u k) i = c * T A A' u i.

  Definition averages : Type := (nat * (An * (I -> R)))%type.
  Definition count (s : averages) : nat := fst s.
  Definition at_anchor (s : averages) : An := fst (snd s).
  Definition avg (s : averages) : I -> R := snd (snd s).

  Variables (first : E -> An) (meet : averages -> averages -> An) (sound : averages -> Prop).
  Definition avg_lift (x : E) : averages := (1%nat, (first x, phi x (first x))).
  Definition avg_combine (a b : averages) : averages :=
    let C := meet a b in
    let n := (count a + count b)%nat in
    let u := T (at_anchor a) C (avg a) in
    let v := T (at_anchor b) C (avg b) in
    (n, (C, fun i => u i + (v i - u i) * (INR (count b) / INR n))).

  Hypothesis first_holds : forall x, holds x (first x) /\ sound (avg_lift x).
  Hypothesis meet_moves : forall a b, sound a -> sound b ->
    moves (at_anchor a) (meet a b) /\ moves (at_anchor b) (meet a b) /\ sound (avg_combine a b).

  Definition averaging (xs : list E) (s : averages) : Prop :=
    sound s /\ count s = length xs /\ Forall (fun x => holds x (at_anchor s)) xs
    /\ forall i, avg s i = lsum (fun x => phi x (at_anchor s) i) xs / INR (length xs).

  Lemma moved_average : forall xs A C u i, xs <> [] -> moves A C -> Forall (fun x => holds x A) xs ->
    (forall k, u k = lsum (fun x => phi x A k) xs / INR (length xs)) ->
    T A C u i = lsum (fun x => phi x C i) xs / INR (length xs).
  Proof.
    intros xs A C u i N M H Hu. set (total := fun k => lsum (fun x => phi x A k) xs).
    replace u with (fun k => / INR (length xs) * total k)
      by (apply functional_extensionality; intros k; rewrite Hu; unfold total, Rdiv; ring).
    rewrite T_scale. unfold Rdiv. rewrite Rmult_comm. f_equal.
    assert (E1 : reduce (@fplus I) (map (fun x => phi x A) xs) = Some total) by now apply fplus_total.
    pose proof (moved_total laws A C M H E1) as E2. rewrite fplus_total in E2 by auto.
    injection E2 as E2. now rewrite <- E2.
  Qed.

  Theorem average_combine : forall xs ys a b, xs <> [] -> ys <> [] ->
    averaging xs a -> averaging ys b -> averaging (xs ++ ys) (avg_combine a b).
  Proof.
    intros xs ys a b Nx Ny (Sa & Ca & Ha & Ua) (Sb & Cb & Hb & Ub).
    destruct (meet_moves Sa Sb) as (Ma & Mb & S'). split; [assumption |].
    split; [unfold avg_combine, count in *; cbn; now rewrite Ca, Cb, app_length |]. split.
    - apply Forall_app. split; [revert Ha | revert Hb]; apply Forall_impl; intros x H; eapply (O2_holds laws); eauto.
    - intros i. unfold avg_combine. cbn.
      rewrite (moved_average _ i Nx Ma Ha Ua), (moved_average _ i Ny Mb Hb Ub), lsum_app.
      rewrite Ca, Cb, app_length, plus_INR.
      pose proof (INR_length_pos Nx). pose proof (INR_length_pos Ny). field. lra.
  Qed.

  Theorem average_bracketing : forall t, represents averaging (leaves t) (run avg_lift avg_combine t).
  Proof.
    apply every_bracketing; [| intros; now apply average_combine].
    intros x. destruct (first_holds x). repeat split; auto. intros i. cbn. field.
  Qed.

  Variables (D : Type) (F : E -> D -> R) (terms : list ((D -> An -> R) * I)).

  Definition average_of_terms (d : D) (s : averages) : R :=
    INR (count s) * lsum (fun h => fst h d (at_anchor s) * avg s (snd h)) terms.

  Theorem average_value : forall t d xs, Permutation (leaves t) xs -> xs <> [] ->
    (forall x A, In x xs -> holds x A -> F x d = lsum (fun h => fst h d A * phi x A (snd h)) terms) ->
    option_map (average_of_terms d) (run avg_lift avg_combine t) = Some (lsum (fun x => F x d) xs).
  Proof.
    intros t d xs P N O1. pose proof (average_bracketing t) as R.
    destruct (run avg_lift avg_combine t) as [[n [A u]]|]; simpl in R.
    - destruct R as [N' (_ & C & H & Hu)]. cbn in *. subst n. f_equal.
      pose proof (INR_length_pos N'). unfold average_of_terms. cbn.
      rewrite <- (lsum_permutation (fun x => F x d) P), <- lsum_scal.
      rewrite (lsum_ext_in (fun x => F x d) (fun x => lsum (fun h => fst h d A * phi x A (snd h)) terms)).
      + rewrite lsum_swap. apply lsum_ext. intros [h k]. cbn. rewrite Hu, lsum_scal. field. lra.
      + intros x Hin. rewrite Forall_forall in H. apply O1; auto. eapply Permutation_in; eassumption.
    - rewrite R in P. apply Permutation_nil in P. congruence.
  Qed.
End Average.
