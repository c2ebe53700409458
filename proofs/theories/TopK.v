(** * Top-k: sorted lists of (value, position), by value descending, then by position ascending (theory, section 2.3).

    The definition is [firstn k (sort xs)]. [topk_bracketing]: two such lists merged and cut to k are the top-k of both
    streams, so every tree gives the definition; [topk_permutation]: in every order; [topk_strict]: a strictly
    increasing map pulls out. *)

From Coq Require Import List Permutation Reals Lra Lia Sorted.
From Redalg Require Import Fold.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

Definition entry : Type := (R * nat)%type.

(** A total order, so ties go to the lowest position. *)
Definition ahead (p q : entry) : Prop := fst q < fst p \/ (fst p = fst q /\ (snd p <= snd q)%nat).

Lemma ahead_total : forall p q, {ahead p q} + {ahead q p}.
Proof.
  intros [a i] [b j]. unfold ahead. cbn. destruct (total_order_T a b) as [[H|H]|H].
  - right. now left.
  - destruct (Compare_dec.le_le_S_dec i j); [left | right]; right; auto. split; auto. lia.
  - left. now left.
Qed.

Lemma ahead_refl : forall p, ahead p p.
Proof. intros [a i]. right. auto. Qed.

Lemma ahead_trans : forall p q r, ahead p q -> ahead q r -> ahead p r.
Proof. unfold ahead. intros p q r [H|[H I]] [K|[K J]]; [left; lra | left; lra | left; lra | right; split; [lra | lia]]. Qed.

Lemma ahead_antisym : forall p q, ahead p q -> ahead q p -> p = q.
Proof.
  intros [a i] [b j]. unfold ahead. cbn. intros [H|[H I]] [K|[K J]]; try lra. f_equal; [lra | lia].
Qed.

Fixpoint insert (p : entry) (l : list entry) : list entry :=
  match l with
  | [] => [p]
  | q :: l' => if ahead_total p q then p :: l else q :: insert p l'
  end.

Definition sort (l : list entry) : list entry := fold_right insert [] l.

(** Two sorted lists into one. *)
Fixpoint merge (a : list entry) : list entry -> list entry :=
  match a with
  | [] => fun b => b
  | p :: a' => fix merge_a b :=
      match b with
      | [] => p :: a'
      | q :: b' => if ahead_total p q then p :: merge a' b else q :: merge_a b'
      end
  end.

Lemma merge_nil_r : forall a, merge a [] = a.
Proof. now destruct a. Qed.

Lemma merge_cons : forall p a q b,
  merge (p :: a) (q :: b) = if ahead_total p q then p :: merge a (q :: b) else q :: merge (p :: a) b.
Proof. reflexivity. Qed.

Notation sorted := (StronglySorted ahead).

Lemma insert_permutation : forall p l, Permutation (p :: l) (insert p l).
Proof.
  induction l as [|q l IH]; simpl; auto. destruct ahead_total; auto.
  rewrite perm_swap. now apply perm_skip.
Qed.

Lemma sort_permutation : forall l, Permutation l (sort l).
Proof.
  induction l as [|p l IH]; simpl; auto. rewrite <- insert_permutation. now apply perm_skip.
Qed.

Lemma insert_sorted : forall p l, sorted l -> sorted (insert p l).
Proof.
  induction 1 as [|q l S IH F]; simpl; [repeat constructor |]. destruct ahead_total as [H|H].
  - constructor; [now constructor |]. constructor; auto. eapply Forall_impl; [| eassumption].
    intros. eapply ahead_trans; eauto.
  - constructor; auto. rewrite <- insert_permutation. now constructor.
Qed.

Lemma sort_sorted : forall l, sorted (sort l).
Proof. induction l; simpl; [constructor | now apply insert_sorted]. Qed.

Lemma merge_permutation : forall a b, Permutation (a ++ b) (merge a b).
Proof.
  induction a as [|p a IHa]; auto. induction b as [|q b IHb]; [now rewrite merge_nil_r, app_nil_r |].
  rewrite merge_cons. destruct ahead_total.
  - simpl. apply perm_skip, IHa.
  - rewrite <- IHb. symmetry. apply Permutation_middle.
Qed.

Lemma merge_sorted : forall a b, sorted a -> sorted b -> sorted (merge a b).
Proof.
  induction a as [|p a IHa]; auto. induction b as [|q b IHb]; intros Sa Sb; [now rewrite merge_nil_r |].
  rewrite merge_cons. inversion Sa as [|? ? Sa' Fa]. inversion Sb as [|? ? Sb' Fb]. subst.
  destruct ahead_total as [H|H]; constructor; auto; rewrite <- merge_permutation, Forall_app; split; auto.
  - constructor; auto. eapply Forall_impl; [| eassumption]. intros. eapply ahead_trans; eauto.
  - constructor; auto. eapply Forall_impl; [| eassumption]. intros. eapply ahead_trans; eauto.
Qed.

Lemma sorted_unique : forall a b, sorted a -> sorted b -> Permutation a b -> a = b.
Proof.
  induction a as [|p a IH]; intros b Sa Sb P; [now apply Permutation_nil in P |].
  destruct b as [|q b]; [symmetry in P; now apply Permutation_nil in P |].
  inversion Sa as [|? ? Sa' Fa]. inversion Sb as [|? ? Sb' Fb]. subst. rewrite Forall_forall in Fa, Fb.
  assert (p = q).
  { assert (Hp : In p (q :: b)) by (eapply Permutation_in; [eassumption | now left]).
    assert (Hq : In q (p :: a)) by (eapply Permutation_in; [symmetry; eassumption | now left]).
    destruct Hp as [->|Hp], Hq as [Hq|Hq]; auto. apply ahead_antisym; auto. }
  subst q. f_equal. apply IH; auto. eapply Permutation_cons_inv; eassumption.
Qed.

Lemma sort_unique : forall l m, Permutation l m -> sort l = sort m.
Proof.
  intros l m P. apply sorted_unique; auto using sort_sorted. now rewrite <- (sort_permutation l), <- (sort_permutation m).
Qed.

Lemma merge_sort : forall l m, merge (sort l) (sort m) = sort (l ++ m).
Proof.
  intros. apply sorted_unique; auto using merge_sorted, sort_sorted.
  transitivity (sort l ++ sort m); [symmetry; apply merge_permutation |].
  transitivity (l ++ m); [apply Permutation_app; symmetry |]; apply sort_permutation.
Qed.

(** Nothing beyond the first k of a piece can be among the first k of the whole. *)
Lemma firstn_merge : forall k a b m n, (k <= m)%nat -> (k <= n)%nat ->
  firstn k (merge (firstn m a) (firstn n b)) = firstn k (merge a b).
Proof.
  induction k as [|k IH]; intros a b m n Hm Hn; auto.
  destruct m as [|m]; [lia |]. destruct n as [|n]; [lia |].
  destruct a as [|p a].
  - rewrite firstn_nil. cbn [merge]. rewrite firstn_firstn. now replace (Nat.min (S k) (S n)) with (S k) by lia.
  - destruct b as [|q b].
    + change (firstn (S n) (@nil entry)) with (@nil entry). rewrite !merge_nil_r, firstn_firstn.
      now replace (Nat.min (S k) (S m)) with (S k) by lia.
    + change (firstn (S m) (p :: a)) with (p :: firstn m a). change (firstn (S n) (q :: b)) with (q :: firstn n b).
      rewrite !merge_cons. destruct ahead_total; cbn [firstn]; f_equal.
      * change (q :: firstn n b) with (firstn (S n) (q :: b)). apply IH; lia.
      * change (p :: firstn m a) with (firstn (S m) (p :: a)). apply IH; lia.
Qed.

Section TopK.
  Variables (k : nat) (E : Type) (f : E -> entry).

  Definition topk (xs : list E) : list entry := firstn k (sort (map f xs)).
  Definition topk_combine (a b : list entry) : list entry := firstn k (merge a b).

  Theorem topk_app : forall xs ys, topk (xs ++ ys) = topk_combine (topk xs) (topk ys).
  Proof. intros. unfold topk, topk_combine. rewrite firstn_merge by auto. now rewrite merge_sort, map_app. Qed.

  Theorem topk_bracketing : forall t, leaves t <> [] ->
    run (fun x => topk [x]) topk_combine t = Some (topk (leaves t)).
  Proof.
    intros t N. assert (R : represents (fun xs s => s = topk xs) (leaves t) (run (fun x => topk [x]) topk_combine t)).
    - apply every_bracketing; auto. intros xs ys a b _ _ -> ->. symmetry. apply topk_app.
    - destruct (run _ _ t) as [s|]; simpl in R; [f_equal; tauto | congruence].
  Qed.

  Theorem topk_permutation : forall xs ys, Permutation xs ys -> topk xs = topk ys.
  Proof. intros. unfold topk. now rewrite (sort_unique (Permutation_map f H)). Qed.

  (** On the states that occur, combine is associative and commutative. *)
  Theorem topk_assoc : forall xs ys zs,
    topk_combine (topk_combine (topk xs) (topk ys)) (topk zs) = topk_combine (topk xs) (topk_combine (topk ys) (topk zs)).
  Proof. intros. now rewrite <- !topk_app, app_assoc. Qed.

  Theorem topk_comm : forall xs ys, topk_combine (topk xs) (topk ys) = topk_combine (topk ys) (topk xs).
  Proof. intros. rewrite <- !topk_app. apply topk_permutation, Permutation_app_comm. Qed.
End TopK.

(** A strictly increasing map keeps the order, so the raw values are kept and mapped in finalize. *)
Definition on_value (phi : R -> R) (p : entry) : entry := (phi (fst p), snd p).

Theorem topk_strict : forall (phi : R -> R), (forall u v, u < v -> phi u < phi v) ->
  forall k E (f : E -> entry) xs, topk k (fun x => on_value phi (f x)) xs = map (on_value phi) (topk k f xs).
Proof.
  intros phi H k E f xs. unfold topk. rewrite <- firstn_map. f_equal.
  apply sorted_unique; auto using sort_sorted.
  - assert (S : sorted (sort (map f xs))) by apply sort_sorted. induction S as [|p l S IH F]; simpl; constructor; auto.
    rewrite Forall_map. revert F. apply Forall_impl. intros q [A|[A I]]; [left | right]; cbn; auto. rewrite A; auto.
  - rewrite <- sort_permutation, <- map_map. apply Permutation_map, sort_permutation.
Qed.
