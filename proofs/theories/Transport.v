(** * Transport: slots held at anchors, and how they move (theory, sections 3.1 and 6).

    A state is an anchor [A] and a family of slots [u i = sum[j](phi x_j A i)], [i] in any index type (a finite one,
    or a finite one times the free axes). A slot moves by finitely many others:

        T A A' u i = Σ c(A, A')·u k   over the pairs (c, k) of [rows i]

    - [transport_value], [transport_associative]: for every tree, every order and every policy, Σ_k H_k(D, A)·u_k is
      the definition sum[j](F x_j D); combine is associative up to the choice of anchors;
    - [additive_value]: anchors that are subtracted, T a function of h = A' - A;
    - [multiplicative_value]: anchors that divide, T a function of s = A' / A;
    - [average_bracketing]: slots held as averages Σ phi / n. *)

From Coq Require Import List Permutation Reals Lra FunctionalExtensionality.
From Redalg Require Import Fold Sums.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

(** ** Building [moving] from parts: slots that do not move, slots at one anchor, one anchor of several *)

Lemma moving_fixed : forall E An U (op : U -> U -> U) (f : E -> U) (holds : E -> An -> Prop) (moves : An -> An -> Prop),
  (forall u v w, op (op u v) w = op u (op v w)) ->
  (forall x A A', holds x A -> moves A A' -> holds x A') -> (forall A B C, moves A B -> moves B C -> moves A C) ->
  moving op (fun x _ => f x) (fun _ _ u => u) holds moves.
Proof. intros. constructor; auto. Qed.

Definition both (U V : Type) (op : U -> U -> U) (op' : V -> V -> V) (a b : U * V) : U * V :=
  (op (fst a) (fst b), op' (snd a) (snd b)).

Lemma moving_pair : forall E An U V op op' (phi : E -> An -> U) (psi : E -> An -> V) T T' holds moves,
  moving op phi T holds moves -> moving op' psi T' holds moves ->
  moving (both op op') (fun x A => (phi x A, psi x A)) (fun A B u => (T A B (fst u), T' A B (snd u))) holds moves.
Proof.
  intros E An U V op op' phi psi T T' holds moves L M. constructor; unfold both; cbn.
  - apply (O2_holds L).
  - intros. f_equal; [apply (O2 L) | apply (O2 M)]; auto.
  - apply (O3_moves L).
  - intros. f_equal; [apply (O3 L) | apply (O3 M)]; auto.
  - intros A [u v] H. cbn. f_equal; [apply (O3_still L) | apply (O3_still M)]; auto.
  - intros. f_equal; [apply (O4 L) | apply (O4 M)].
  - intros. f_equal; [apply (O5 L) | apply (O5 M)]; auto.
Qed.

Lemma moving_pull : forall E An An' U op (phi : E -> An -> U) T holds moves (f : An' -> An),
  moving op phi T holds moves ->
  moving op (fun x A => phi x (f A)) (fun A B => T (f A) (f B)) (fun x A => holds x (f A))
    (fun A B => moves (f A) (f B)).
Proof.
  intros E An An' U op phi T holds moves f L. constructor; intros.
  - eapply (O2_holds L); eauto.
  - now apply (O2 L).
  - eapply (O3_moves L); eauto.
  - now apply (O3 L).
  - now apply (O3_still L).
  - apply (O4 L).
  - now apply (O5 L).
Qed.

(** ** Families of slots *)

Section Linear.
  Variables (E An I : Type).
  Definition fplus (u v : I -> R) : I -> R := fun i => u i + v i.

  Lemma fplus_assoc : forall u v w, fplus (fplus u v) w = fplus u (fplus v w).
  Proof. intros. apply functional_extensionality. intros. unfold fplus. ring. Qed.

  Lemma fplus_comm : forall u v, fplus u v = fplus v u.
  Proof. intros. apply functional_extensionality. intros. unfold fplus. ring. Qed.

  Lemma fplus_total : forall (f : E -> I -> R) xs, xs <> [] ->
    reduce fplus (map f xs) = Some (fun i => lsum (fun x => f x i) xs).
  Proof.
    induction xs as [|x xs IH]; intros N; [congruence |]. cbn [map reduce]. destruct xs as [|y ys].
    - simpl. f_equal. apply functional_extensionality. intros. ring.
    - rewrite IH by discriminate. reflexivity.
  Qed.

  Variables (phi : E -> An -> I -> R) (rows : I -> list ((An -> An -> R) * I)).
  Variables (holds : E -> An -> Prop) (moves : An -> An -> Prop).

  Definition T (A A' : An) (u : I -> R) : I -> R := fun i => lsum (fun m => fst m A A' * u (snd m)) (rows i).

  Lemma T_linear : forall A A' u v, T A A' (fplus u v) = fplus (T A A' u) (T A A' v).
  Proof.
    intros. apply functional_extensionality. intros i. unfold T, fplus. rewrite <- lsum_plus.
    apply lsum_ext. intros. ring.
  Qed.

  Lemma T_scales : forall A A' c u i, T A A' (fun k => c * u k) i = c * T A A' u i.
  Proof. intros. unfold T. rewrite <- lsum_scal. apply lsum_ext. intros. ring. Qed.

  (** The obligations, as they are printed: slot by slot. *)
  Lemma linear_moving :
    (forall x A A', holds x A -> moves A A' -> holds x A') ->
    (forall x A A' i, holds x A -> moves A A' -> T A A' (phi x A) i = phi x A' i) ->
    (forall A B C, moves A B -> moves B C -> moves A C) ->
    (forall A B C u i, moves A B -> moves B C -> T B C (T A B u) i = T A C u i) ->
    (forall A u i, moves A A -> T A A u i = u i) ->
    moving fplus phi T holds moves.
  Proof.
    intros Hh H2 Hm H3 H0. constructor; intros; eauto; try (apply functional_extensionality; intros; now auto).
    - apply fplus_assoc.
    - apply T_linear.
  Qed.
End Linear.

(** ** Values: O1 for a stage of kind sum *)

Section Values.
  Variables (E An I : Type) (phi : E -> An -> I -> R) (T : An -> An -> (I -> R) -> I -> R).
  Variables (holds : E -> An -> Prop) (moves : An -> An -> Prop).
  Hypothesis laws : moving (@fplus I) phi T holds moves.
  Variables (first : E -> An) (meet : held An (I -> R) -> held An (I -> R) -> An).
  Variable sound : held An (I -> R) -> Prop.
  Hypothesis first_holds : forall x, holds x (first x) /\ sound (held_lift phi first x).
  Hypothesis meet_moves : forall a b, sound a -> sound b ->
    moves (fst a) (meet a b) /\ moves (fst b) (meet a b) /\ sound (held_combine (@fplus I) T meet a b).

  Definition form : tree E -> option (held An (I -> R)) := run (held_lift phi first) (held_combine (@fplus I) T meet).

  Theorem transport_slots : forall t A u, form t = Some (A, u) ->
    (forall i, u i = lsum (fun x => phi x A i) (leaves t)) /\ Forall (fun x => holds x A) (leaves t).
  Proof.
    intros t A u H. pose proof (moving_bracketing laws first meet sound first_holds meet_moves t) as R.
    unfold form in H. rewrite H in R. destruct R as [N (_ & Hx & Hu)]. split; auto.
    cbn in Hu. rewrite fplus_total in Hu by auto. injection Hu as <-. auto.
  Qed.

  Lemma form_nonempty : forall t, leaves t <> [] -> exists s, form t = Some s.
  Proof.
    intros t N. pose proof (moving_bracketing laws first meet sound first_holds meet_moves t) as R.
    unfold form. destruct (run _ _ t); [eauto | simpl in R; congruence].
  Qed.

  (** What a state holds, in any order of the stream. *)
  Theorem form_state : forall t xs, Permutation (leaves t) xs -> xs <> [] ->
    exists A u, form t = Some (A, u) /\ (forall i, u i = lsum (fun x => phi x A i) xs) /\ Forall (fun x => holds x A) xs.
  Proof.
    intros t xs P N. destruct (form_nonempty t) as [[A u] H].
    - intros E0. rewrite E0 in P. apply Permutation_nil in P. congruence.
    - destruct (transport_slots _ H) as [Hu Hx]. exists A, u. split; auto. split.
      + intros i. rewrite Hu. now apply lsum_permutation.
      + now apply (Permutation_Forall P).
  Qed.

  Variables (D : Type) (F : E -> D -> R) (terms : list ((D -> An -> R) * I)).
  Definition value (d : D) (s : held An (I -> R)) : R := lsum (fun h => fst h d (fst s) * snd s (snd h)) terms.

  (** O1 is needed at the elements of the stream and the context they give, no others. *)
  Theorem transport_value : forall t d xs, Permutation (leaves t) xs -> xs <> [] ->
    (forall x A, In x xs -> holds x A -> F x d = lsum (fun h => fst h d A * phi x A (snd h)) terms) ->
    option_map (value d) (form t) = Some (lsum (fun x => F x d) xs).
  Proof.
    intros t d xs P N O1. destruct (form_state _ P N) as (A & u & -> & Hu & Hx). unfold value. cbn. f_equal.
    rewrite (lsum_ext_in (fun x => F x d) (fun x => lsum (fun h => fst h d A * phi x A (snd h)) terms)).
    - rewrite lsum_swap. apply lsum_ext. intros [h k]. cbn. now rewrite lsum_scal, Hu.
    - rewrite Forall_forall in Hx. auto.
  Qed.

  Theorem transport_associative : forall a b c C i, sound a -> sound b -> sound c ->
    let combine := held_combine (@fplus I) T meet in
    let l := combine (combine a b) c in let r := combine a (combine b c) in
    moves (fst l) C -> moves (fst r) C -> T (fst l) C (snd l) i = T (fst r) C (snd r) i.
  Proof.
    intros a b c C i Sa Sb Sc combine l r Hl Hr.
    exact (f_equal (fun u => u i) (combine_associative laws meet sound meet_moves a b c C Sa Sb Sc Hl Hr)).
  Qed.
End Values.

(** ** Transports that depend on a shift only: a group of shifts *)

Section Shifts.
  Variables (E An I G : Type) (shift : An -> An -> G) (plus : G -> G -> G) (zero : G) (good : G -> Prop).
  Variables (phi : E -> An -> I -> R) (rows : I -> list ((G -> R) * I)) (valid : An -> Prop).
  Let moves A B := valid A /\ valid B.
  Hypothesis shift_good : forall A B, moves A B -> good (shift A B).
  Hypothesis shift_trans : forall A B C, moves A B -> moves B C -> plus (shift A B) (shift B C) = shift A C.
  Hypothesis shift_same : forall A, valid A -> shift A A = zero.

  Definition Ts (h : G) (u : I -> R) : I -> R := fun i => lsum (fun m => fst m h * u (snd m)) (rows i).

  Lemma Ts_scales : forall h c u i, Ts h (fun k => c * u k) i = c * Ts h u i.
  Proof. intros. unfold Ts. rewrite <- lsum_scal. apply lsum_ext. intros. ring. Qed.

  Hypothesis O2 : forall x A A' i, moves A A' -> Ts (shift A A') (phi x A) i = phi x A' i.
  Hypothesis O3 : forall h k u i, good h -> good k -> Ts k (Ts h u) i = Ts (plus h k) u i.
  Hypothesis O3_still : forall u i, Ts zero u i = u i.

  Lemma shift_moving : moving (@fplus I) phi (fun A A' => Ts (shift A A')) (fun _ A => valid A) moves.
  Proof.
    constructor; unfold moves in *; intros; try (now intuition).
    - apply functional_extensionality. intros i. now apply O2.
    - apply functional_extensionality. intros i. rewrite O3 by auto. now rewrite shift_trans.
    - apply functional_extensionality. intros i. rewrite shift_same by tauto. apply O3_still.
    - apply fplus_assoc.
    - apply functional_extensionality. intros i. unfold Ts, fplus. rewrite <- lsum_plus. apply lsum_ext. intros. ring.
  Qed.

  Variables (first : E -> An) (meet : held An (I -> R) -> held An (I -> R) -> An).
  Hypothesis first_valid : forall x, valid (first x).
  Hypothesis meet_valid : forall a b, valid (fst a) -> valid (fst b) -> valid (meet a b).
  Variables (D : Type) (F : E -> D -> R) (terms : list ((D -> An -> R) * I)).

  Theorem shift_value : forall t d xs, Permutation (leaves t) xs -> xs <> [] ->
    (forall x A, In x xs -> valid A -> F x d = lsum (fun h => fst h d A * phi x A (snd h)) terms) ->
    option_map (value terms d) (form phi (fun A A' => Ts (shift A A')) first meet t) = Some (lsum (fun x => F x d) xs).
  Proof.
    intros. apply transport_value with (holds := fun _ A => valid A) (moves := moves) (sound := fun s => valid (fst s));
      unfold moves; auto.
    - apply shift_moving.
    - cbn. auto.
    - cbn. auto.
  Qed.
End Shifts.

(** *** Anchors that are subtracted: any policy at all *)

Theorem additive_value : forall (E I : Type) (phi : E -> R -> I -> R) (rows : I -> list ((R -> R) * I)),
  (forall x A A' i, Ts rows (A' - A) (phi x A) i = phi x A' i) ->
  (forall h k u i, Ts rows k (Ts rows h u) i = Ts rows (h + k) u i) ->
  (forall u i, Ts rows 0 u i = u i) ->
  forall (first : E -> R) (meet : held R (I -> R) -> held R (I -> R) -> R),
  forall (D : Type) (F : E -> D -> R) (terms : list ((D -> R -> R) * I)),
  forall t d xs, Permutation (leaves t) xs -> xs <> [] ->
  (forall x A, In x xs -> F x d = lsum (fun h => fst h d A * phi x A (snd h)) terms) ->
  option_map (value terms d) (form phi (fun A A' => Ts rows (A' - A)) first meet t) = Some (lsum (fun x => F x d) xs).
Proof.
  intros. apply shift_value with (shift := fun A A' => A' - A) (plus := Rplus) (zero := 0) (good := fun _ => True)
    (valid := fun _ => True); auto; intros; ring.
Qed.

(** *** Anchors that divide: policies that never choose 0 *)

Theorem multiplicative_value : forall (E I : Type) (phi : E -> R -> I -> R) (rows : I -> list ((R -> R) * I)),
  (forall x A A' i, A <> 0 -> A' <> 0 -> Ts rows (A' / A) (phi x A) i = phi x A' i) ->
  (forall r s u i, r <> 0 -> s <> 0 -> Ts rows s (Ts rows r u) i = Ts rows (r * s) u i) ->
  (forall u i, Ts rows 1 u i = u i) ->
  forall (first : E -> R) (meet : held R (I -> R) -> held R (I -> R) -> R),
  (forall x, first x <> 0) -> (forall a b, fst a <> 0 -> fst b <> 0 -> meet a b <> 0) ->
  forall (D : Type) (F : E -> D -> R) (terms : list ((D -> R -> R) * I)),
  forall t d xs, Permutation (leaves t) xs -> xs <> [] ->
  (forall x A, In x xs -> A <> 0 -> F x d = lsum (fun h => fst h d A * phi x A (snd h)) terms) ->
  option_map (value terms d) (form phi (fun A A' => Ts rows (A' / A)) first meet t) = Some (lsum (fun x => F x d) xs).
Proof.
  intros. apply shift_value with (shift := fun A A' => A' / A) (plus := Rmult) (zero := 1) (good := fun s => s <> 0)
    (valid := fun A => A <> 0); auto; intros.
  - unfold Rdiv. apply Rmult_integral_contrapositive_currified; [tauto | apply Rinv_neq_0_compat; tauto].
  - field. tauto.
  - now field.
  - apply H; tauto.
Qed.

(** ** Elements without a value (x = -oo) and anchors that none has reached

    [None] as an element contributes nothing wherever it is held; [None] as an anchor holds only such elements, and
    everything moves away from it: e^{x - m} is 0 for x = -oo whatever m is, and -oo - (-oo) is never computed. *)

Section Masked.
  Variables (E An I : Type) (phi : E -> An -> I -> R) (T : An -> An -> (I -> R) -> I -> R).
  Variables (holds : E -> An -> Prop) (moves : An -> An -> Prop).
  Hypothesis laws : moving (@fplus I) phi T holds moves.
  Definition fzero : I -> R := fun _ => 0.
  Hypothesis T_zero : forall A B, T A B fzero = fzero.

  Definition masked_phi (x : option E) (A : option An) : I -> R :=
    match x, A with Some y, Some B => phi y B | _, _ => fzero end.
  Definition masked_T (A B : option An) (u : I -> R) : I -> R :=
    match A, B with Some C, Some D => T C D u | None, Some _ => fzero | _, None => u end.
  Definition masked_holds (x : option E) (A : option An) : Prop :=
    match x, A with Some y, Some B => holds y B | Some _, None => False | None, _ => True end.
  Definition masked_moves (A B : option An) : Prop :=
    match A, B with Some C, Some D => moves C D | Some _, None => False | None, _ => True end.

  Lemma fplus_zero : fplus fzero fzero = fzero.
  Proof. apply functional_extensionality. intros. unfold fplus, fzero. ring. Qed.

  Theorem masked_moving : moving (@fplus I) masked_phi masked_T masked_holds masked_moves.
  Proof.
    constructor.
    - intros [x|] [A|] [B|]; cbn; try tauto. apply (O2_holds laws).
    - intros [x|] [A|] [B|]; cbn; try tauto; auto. apply (O2 laws).
    - intros [A|] [B|] [C|]; cbn; try tauto. apply (O3_moves laws).
    - intros [A|] [B|] [C|] u; cbn; try tauto; auto. apply (O3 laws).
    - intros [A|] u; cbn; auto. apply (O3_still laws).
    - apply (O4 laws).
    - intros [A|] [B|] u v; cbn; try tauto; auto using eq_sym, fplus_zero. apply (O5 laws).
  Qed.
End Masked.
