(** * Forms as certificates state them: extrema and other orders, anchors made of them or free, sums and averages.

    A state is a count, an anchor [(o, m)] and the slots: [o] are the order slots (extrema, products, positions), each
    with its own (+), homomorphic to what it is meant by over a stream, and free of anchors; [m] are the anchors that
    any policy may choose; a slot is the sum of its elements at the anchor, or their average ([avg]). [form_state]: for
    every tree the state is what its parts mean; [form_permutation]: in every order, where no part sees the order. *)

From Coq Require Import List Permutation Reals Lra.
From Redalg Require Import Fold Sums Transport Order Printed.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

Section Form.
  Variables (J O : Type) (val : O -> Type) (op : forall o, val o -> val o -> val o) (orders_of : J -> forall o, val o).
  Variables (M I : Type) (avg : I -> bool).
  Definition anchor : Type := ((forall o, val o) * M)%type.
  Variables (phi : J -> anchor -> I -> R) (rows : I -> list ((anchor -> anchor -> R) * I)).
  Variables (holds : J -> anchor -> Prop) (moves : anchor -> anchor -> Prop) (valid : anchor -> Prop).

  Definition state : Type := (nat * (anchor * (I -> R)))%type.
  Definition count (s : state) : nat := fst s.
  Definition at_ (s : state) : anchor := fst (snd s).
  Definition slots (s : state) : I -> R := snd (snd s).
  Definition sums (s : state) : I -> R := fun i => if avg i then INR (count s) * slots s i else slots s i.

  Variables (first : J -> M) (meet : state -> state -> M).
  Definition start (x : J) : anchor := (orders_of x, first x).
  Definition together (a b : state) : anchor := (fun o => op (fst (at_ a) o) (fst (at_ b) o), meet a b).

  Definition lift (x : J) : state := (1%nat, (start x, phi x (start x))).
  Definition combine (a b : state) : state :=
    let C := together a b in
    let u := T rows (at_ a) C (sums a) in
    let v := T rows (at_ b) C (sums b) in
    let k := INR (count a) in
    let l := INR (count b) in
    ((count a + count b)%nat,
     (C, fun i => if avg i then u i / k + (v i / l - u i / k) * (l / (k + l)) else u i + v i)).

  Variable meant_by : forall o, list J -> val o.
  Hypothesis O8_one : forall o x, meant_by o [x] = orders_of x o.
  Hypothesis O8_app : forall o xs ys, xs <> [] -> ys <> [] -> meant_by o (xs ++ ys) = op (meant_by o xs) (meant_by o ys).
  Hypothesis laws : moving (@fplus I) phi (T rows) holds moves.
  Hypothesis first_holds : forall x, holds x (start x) /\ valid (start x).
  Hypothesis meet_moves : forall a b, valid (at_ a) -> valid (at_ b) ->
    moves (at_ a) (together a b) /\ moves (at_ b) (together a b) /\ valid (together a b).

  Definition meant (xs : list J) (A : anchor) (i : I) : R :=
    if avg i then lsum (fun x => phi x A i) xs / INR (length xs) else lsum (fun x => phi x A i) xs.

  Definition meaning (xs : list J) (s : state) : Prop :=
    valid (at_ s) /\ count s = length xs /\ Forall (fun x => holds x (at_ s)) xs
    /\ (forall o, fst (at_ s) o = meant_by o xs)
    /\ forall i, slots s i = meant xs (at_ s) i.

  Lemma meaning_sums : forall xs s i, xs <> [] -> meaning xs s -> sums s i = lsum (fun x => phi x (at_ s) i) xs.
  Proof.
    intros xs s i N (_ & C & _ & _ & Hu). unfold sums. rewrite C, Hu. unfold meant.
    pose proof (INR_length_pos N). destruct (avg i); [field; lra | reflexivity].
  Qed.

  Lemma moved_sums : forall xs s C i, xs <> [] -> meaning xs s -> moves (at_ s) C ->
    T rows (at_ s) C (sums s) i = lsum (fun x => phi x C i) xs.
  Proof.
    intros xs s C i N R Mv. pose proof R as (_ & _ & H & _ & _).
    assert (E1 : reduce (@fplus I) (map (fun x => phi x (at_ s)) xs) = Some (fun i => lsum (fun x => phi x (at_ s) i) xs))
      by now apply fplus_total.
    pose proof (moved_total laws (at_ s) C Mv H E1) as E2. rewrite fplus_total in E2 by assumption.
    injection E2 as E2. apply (f_equal (fun u => u i)) in E2. rewrite E2.
    unfold T. apply lsum_ext. intros [c k]. cbn. now rewrite (meaning_sums k N R).
  Qed.

  Lemma lift_meaning : forall x, meaning [x] (lift x).
  Proof.
    intros x. destruct (first_holds x). repeat split; auto; [intros o; symmetry; apply O8_one |].
    intros i. unfold meant, slots. cbn. destruct (avg i); field.
  Qed.

  Lemma combine_meaning : forall xs ys a b, xs <> [] -> ys <> [] ->
    meaning xs a -> meaning ys b -> meaning (xs ++ ys) (combine a b).
  Proof.
    intros xs ys a b Nx Ny Ra Rb. pose proof Ra as (Va & Ca & Ha & Oa & _). pose proof Rb as (Vb & Cb & Hb & Ob & _).
    destruct (meet_moves a b Va Vb) as (Ma & Mb & V). split; [assumption |].
    split; [unfold combine, count in *; cbn; now rewrite Ca, Cb, app_length |]. split; [| split].
    - apply Forall_app. split; [revert Ha | revert Hb]; apply Forall_impl; intros x H; eapply (O2_holds laws); eauto.
    - intros o. rewrite O8_app by assumption. rewrite <- Oa, <- Ob. reflexivity.
    - intros i. unfold combine, slots. cbn [snd fst].
      rewrite (moved_sums i Nx Ra Ma), (moved_sums i Ny Rb Mb). unfold meant.
      change (at_ (combine a b)) with (together a b) in *. cbn [at_ snd fst].
      rewrite Ca, Cb, lsum_app, app_length, plus_INR.
      pose proof (INR_length_pos Nx). pose proof (INR_length_pos Ny). destruct (avg i); [field; lra | reflexivity].
  Qed.

  Theorem form_bracketing : forall t, represents meaning (leaves t) (run lift combine t).
  Proof. apply every_bracketing; [apply lift_meaning | apply combine_meaning]. Qed.

  (** What the state of any tree holds. *)
  Theorem form_state : forall t, leaves t <> [] -> exists o m u, run lift combine t = Some (length (leaves t), ((o, m), u))
    /\ (forall k, o k = meant_by k (leaves t))
    /\ (forall i, u i = meant (leaves t) (o, m) i) /\ Forall (fun x => holds x (o, m)) (leaves t).
  Proof.
    intros t N. pose proof (form_bracketing t) as R. destruct (run lift combine t) as [[n [[o m] u]]|]; [| contradiction].
    destruct R as [_ (_ & C & H & Ho & Hu)]. cbn in C. subst n. exists o, m, u. auto.
  Qed.

  Hypothesis O8_order : forall o xs ys, Permutation xs ys -> meant_by o xs = meant_by o ys.

  Theorem form_permutation : forall t xs, Permutation (leaves t) xs -> xs <> [] ->
    exists o m u, run lift combine t = Some (length xs, ((o, m), u))
    /\ (forall k, o k = meant_by k xs)
    /\ (forall i, u i = meant xs (o, m) i) /\ Forall (fun x => holds x (o, m)) xs.
  Proof.
    intros t xs P N. destruct (form_state t) as (o & m & u & E & Ho & Hu & H).
    - intros E. rewrite E in P. apply Permutation_nil in P. contradiction.
    - exists o, m, u. rewrite E, (Permutation_length P). repeat split.
      + intros k. rewrite Ho. now apply O8_order.
      + intros i. rewrite Hu. unfold meant. rewrite (Permutation_length P).
        now rewrite (lsum_permutation (fun x => phi x (o, m) i) P).
      + now apply (Permutation_Forall P).
  Qed.
End Form.

(** What holds beside every element of a stream that is not empty. *)
Lemma Forall_of_some : forall (E : Type) (P : Prop) (xs : list E), xs <> [] -> Forall (fun _ => P) xs -> P.
Proof. intros E P [|x xs] N F; [contradiction | now inversion F]. Qed.

(** The streaming fold is one of the trees. *)
Theorem form_stream : forall E S V (lift : E -> S) combine (finalize : S -> V) definition,
  (forall t, leaves t <> [] -> option_map finalize (run lift combine t) = Some (definition (leaves t))) ->
  forall xs, xs <> [] -> option_map finalize (stream lift combine xs) = Some (definition xs).
Proof.
  intros E S V lift combine finalize definition H xs N. rewrite stream_is_a_tree, H; rewrite leaves_comb; auto.
Qed.
