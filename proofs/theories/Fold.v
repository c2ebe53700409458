(** * Folds: from the laws of a form to its results on streams of every length.

    A form has elements [E], states [S], a [lift : E -> S] and a [combine : S -> S -> S]. This file proves, with no
    assumption on lengths:

    - [every_bracketing], [every_stream], [every_partition]: a relation "this state represents that stream" that holds
      for one element and survives [combine] (O8) holds for every binary tree, for the streaming fold
      (update = combine after lift) and for every cut of the stream into pieces, empty ones included;
    - [semigroup_bracketing], [semigroup_permutation]: where [combine] is associative (and commutative), every tree
      (and every order) gives the list reduction;
    - [moving_bracketing], [separated_bracketing]: where states are held at anchors, separation (O1), transport (O2),
      cocycle (O3), the laws of (+) (O4) and distributivity (O5) give the definition, whatever policy chooses the anchors.

    The identity is adjoined (O6): an empty state is [None], never a number. No axioms are used here. *)

From Coq Require Import List Permutation.
Import ListNotations.
Set Implicit Arguments.

(** ** Bracketings *)

Inductive tree (A : Type) : Type :=
| Empty : tree A
| Leaf : A -> tree A
| Node : tree A -> tree A -> tree A.
Arguments Empty {A}.

Fixpoint leaves (A : Type) (t : tree A) : list A :=
  match t with
  | Empty => []
  | Leaf x => [x]
  | Node l r => leaves l ++ leaves r
  end.

(** The semigroup [op] with an identity adjoined. *)
Definition adjoin (S : Type) (op : S -> S -> S) (a b : option S) : option S :=
  match a, b with
  | None, _ => b
  | _, None => a
  | Some x, Some y => Some (op x y)
  end.

Fixpoint eval (A S : Type) (leaf : A -> option S) (op : S -> S -> S) (t : tree A) : option S :=
  match t with
  | Empty => None
  | Leaf x => leaf x
  | Node l r => adjoin op (eval leaf op l) (eval leaf op r)
  end.

(** A tree over single elements, and the streaming fold: update = combine after lift. *)
Definition run (E S : Type) (lift : E -> S) : (S -> S -> S) -> tree E -> option S := eval (fun x => Some (lift x)).
Definition update (E S : Type) (lift : E -> S) (op : S -> S -> S) (s : option S) (x : E) : option S :=
  adjoin op s (Some (lift x)).
Definition stream (E S : Type) (lift : E -> S) (op : S -> S -> S) (xs : list E) : option S :=
  fold_left (update lift op) xs None.

(** The list reduction: the definition of [reduce[j](f x_j)]; [None] on an empty axis. *)
Fixpoint reduce (S : Type) (op : S -> S -> S) (l : list S) : option S :=
  match l with
  | [] => None
  | x :: l' => adjoin op (Some x) (reduce op l')
  end.

(** The streaming fold is one of the trees. *)
Definition comb (A : Type) (xs : list A) : tree A := fold_left (fun t x => Node t (Leaf x)) xs Empty.

Lemma leaves_comb_from : forall A (xs : list A) t,
  leaves (fold_left (fun t x => Node t (Leaf x)) xs t) = leaves t ++ xs.
Proof.
  induction xs as [|x xs IH]; intros t; simpl.
  - now rewrite app_nil_r.
  - rewrite IH. simpl. now rewrite <- app_assoc.
Qed.

Lemma leaves_comb : forall A (xs : list A), leaves (comb xs) = xs.
Proof. intros. apply leaves_comb_from. Qed.

Lemma eval_comb_from : forall A S (leaf : A -> option S) op xs t,
  eval leaf op (fold_left (fun t x => Node t (Leaf x)) xs t)
  = fold_left (fun s x => adjoin op s (leaf x)) xs (eval leaf op t).
Proof. induction xs as [|x xs IH]; intros t; simpl; [reflexivity | now rewrite IH]. Qed.

Lemma stream_is_a_tree : forall E S (lift : E -> S) op xs, stream lift op xs = run lift op (comb xs).
Proof. intros. unfold run, comb. now rewrite eval_comb_from. Qed.

(** O6: empty is neutral, exactly, and the adjoined operation inherits associativity and commutativity. *)
Lemma adjoin_empty_l : forall S op (s : option S), adjoin op None s = s.
Proof. reflexivity. Qed.

Lemma adjoin_empty_r : forall S op (s : option S), adjoin op s None = s.
Proof. now destruct s. Qed.

Lemma adjoin_assoc : forall S (op : S -> S -> S), (forall a b c, op (op a b) c = op a (op b c)) ->
  forall a b c, adjoin op (adjoin op a b) c = adjoin op a (adjoin op b c).
Proof. intros S op H [a|] [b|] [c|]; simpl; congruence. Qed.

Lemma adjoin_comm : forall S (op : S -> S -> S), (forall a b, op a b = op b a) ->
  forall a b, adjoin op a b = adjoin op b a.
Proof. intros S op H [a|] [b|]; simpl; congruence. Qed.

(** ** What represents a stream (O8) *)

Section Represents.
  Variables (E S : Type) (lift : E -> S) (combine : S -> S -> S) (R : list E -> S -> Prop).
  Hypothesis O8_base : forall x, R [x] (lift x).
  Hypothesis O8_step : forall xs ys a b, xs <> [] -> ys <> [] -> R xs a -> R ys b -> R (xs ++ ys) (combine a b).

  Definition represents (xs : list E) (s : option S) : Prop :=
    match s with
    | None => xs = []
    | Some a => xs <> [] /\ R xs a
    end.

  Lemma represents_adjoin : forall xs ys a b,
    represents xs a -> represents ys b -> represents (xs ++ ys) (adjoin combine a b).
  Proof.
    intros xs ys [a|] [b|]; simpl; intros Ha Hb; subst; rewrite ?app_nil_r; auto.
    destruct Ha as [Hx Ha], Hb as [Hy Hb]. split; auto.
    destruct xs; [congruence | discriminate].
  Qed.

  Theorem every_bracketing : forall t, represents (leaves t) (run lift combine t).
  Proof.
    induction t as [|x|l IHl r IHr]; simpl; auto.
    - split; [discriminate | auto].
    - now apply represents_adjoin.
  Qed.

  Theorem every_stream : forall xs, represents xs (stream lift combine xs).
  Proof. intros xs. rewrite stream_is_a_tree. rewrite <- (leaves_comb xs) at 1. apply every_bracketing. Qed.

  (** The stream cut into pieces in any way; a piece may be lifted by any means that represents it. *)
  Theorem every_partition : forall (piece : list E -> option S), (forall p, represents p (piece p)) ->
    forall t : tree (list E), represents (concat (leaves t)) (eval piece combine t).
  Proof.
    intros piece H. induction t as [|p|l IHl r IHr]; simpl; auto.
    - rewrite app_nil_r. apply H.
    - rewrite concat_app. now apply represents_adjoin.
  Qed.

  (** An accumulator that was started from another state (an attention sink, an earlier session) goes on from there. *)
  Theorem every_continuation : forall xs s zs, represents zs s ->
    represents (zs ++ xs) (fold_left (update lift combine) xs s).
  Proof.
    induction xs as [|x xs IH]; intros s zs H; simpl.
    - now rewrite app_nil_r.
    - replace (zs ++ x :: xs) with ((zs ++ [x]) ++ xs) by now rewrite <- app_assoc.
      apply IH. apply represents_adjoin; auto. simpl. split; [discriminate | auto].
  Qed.

  Section Results.
    Variables (O : Type) (finalize : S -> O) (definition : list E -> O).
    Hypothesis O8_finalize : forall xs s, xs <> [] -> R xs s -> finalize s = definition xs.

    Lemma represented_result : forall xs s, represents xs s -> xs <> [] ->
      option_map finalize s = Some (definition xs).
    Proof. intros xs [s|]; simpl; intros H N; [f_equal; now apply O8_finalize | congruence]. Qed.

    Theorem every_result : forall t, leaves t <> [] ->
      option_map finalize (run lift combine t) = Some (definition (leaves t)).
    Proof. intros. apply represented_result; auto. apply every_bracketing. Qed.

    Theorem every_stream_result : forall xs, xs <> [] ->
      option_map finalize (stream lift combine xs) = Some (definition xs).
    Proof. intros. apply represented_result; auto. apply every_stream. Qed.

    (** Where the definition does not see the order, neither does the result. *)
    Theorem every_order_result : (forall xs ys, Permutation xs ys -> definition xs = definition ys) ->
      forall t xs, Permutation (leaves t) xs -> xs <> [] ->
      option_map finalize (run lift combine t) = Some (definition xs).
    Proof.
      intros P t xs Hp N. rewrite <- (P _ _ Hp). apply every_result.
      intros H. rewrite H in Hp. apply Permutation_nil in Hp. congruence.
    Qed.
  End Results.
End Represents.

(** A function between states that commutes with lift and combine commutes with every tree. *)
Theorem run_map : forall E S S' (lift : E -> S) (lift' : E -> S') op op' (f : S -> S'),
  (forall x, f (lift x) = lift' x) -> (forall a b, f (op a b) = op' (f a) (f b)) ->
  forall t, option_map f (run lift op t) = run lift' op' t.
Proof.
  intros E S S' lift lift' op op' f Hl Ho. unfold run. induction t as [|x|l IHl r IHr]; simpl; auto.
  - now rewrite Hl.
  - rewrite <- IHl, <- IHr. destruct (eval _ op l), (eval _ op r); simpl; now rewrite ?Ho.
Qed.

(** ** Semigroups (O4) *)

Section Semigroup.
  Variables (S : Type) (op : S -> S -> S).
  Hypothesis O4_assoc : forall a b c, op (op a b) c = op a (op b c).

  Lemma reduce_app : forall l m, reduce op (l ++ m) = adjoin op (reduce op l) (reduce op m).
  Proof.
    induction l as [|x l IH]; intros m; [reflexivity |].
    cbn [reduce app]. rewrite IH. symmetry. now apply adjoin_assoc.
  Qed.

  Theorem semigroup_bracketing : forall E (lift : E -> S) t, run lift op t = reduce op (map lift (leaves t)).
  Proof.
    intros E lift. unfold run. induction t as [|x|l IHl r IHr]; simpl; auto.
    now rewrite IHl, IHr, map_app, reduce_app.
  Qed.

  Theorem semigroup_stream : forall E (lift : E -> S) xs, stream lift op xs = reduce op (map lift xs).
  Proof. intros. now rewrite stream_is_a_tree, semigroup_bracketing, leaves_comb. Qed.

  Hypothesis O4_comm : forall a b, op a b = op b a.

  Theorem reduce_permutation : forall l m, Permutation l m -> reduce op l = reduce op m.
  Proof.
    intros l m H; induction H as [|x l m _ IH|x y l|l m n _ IH1 _ IH2]; auto; [| |congruence].
    - cbn [reduce]. now rewrite IH.
    - cbn [reduce]. rewrite <- !adjoin_assoc by auto. f_equal. now apply adjoin_comm.
  Qed.

  Theorem semigroup_permutation : forall E (lift : E -> S) t xs, Permutation (leaves t) xs ->
    run lift op t = reduce op (map lift xs).
  Proof. intros. rewrite semigroup_bracketing. now apply reduce_permutation, Permutation_map. Qed.
End Semigroup.

Lemma reduce_some : forall S (op : S -> S -> S) l, l <> [] -> exists s, reduce op l = Some s.
Proof. intros S op [|x l] H; [congruence |]. cbn. destruct (reduce op l); eauto. Qed.

(** A homomorphism [f] pulls out of a reduction. *)
Lemma reduce_map : forall S M (op : S -> S -> S) (opM : M -> M -> M) (f : S -> M),
  (forall a b, f (op a b) = opM (f a) (f b)) ->
  forall l, option_map f (reduce op l) = reduce opM (map f l).
Proof.
  intros S M op opM f H. induction l as [|x l IH]; [reflexivity |].
  cbn [reduce map]. rewrite <- IH. destruct (reduce op l); simpl; now rewrite ?H.
Qed.

(** [combine] need not be associative itself: it is enough that what it denotes is. *)
Theorem denotation_bracketing : forall E S M (lift : E -> S) (combine : S -> S -> S) (den : S -> M) (op : M -> M -> M),
  (forall a b c, op (op a b) c = op a (op b c)) ->
  (forall a b, den (combine a b) = op (den a) (den b)) ->
  forall t, option_map den (run lift combine t) = reduce op (map (fun x => den (lift x)) (leaves t)).
Proof.
  intros. rewrite <- (semigroup_bracketing op) by auto.
  now apply run_map.
Qed.

(** ** States held at anchors (O1, O2, O3, O5)

    [phi x A] is what the element [x] contributes at the anchor [A]; [T A A'] moves a state from [A] to [A'].
    [holds x A]: [x] may be held at [A] (for extremum anchors, [x <= A]); [moves A A']: [A] may move to [A'] (for
    extremum anchors, [A <= A']; for multiplicative ones, neither is 0). *)

Record moving (E An U : Type) (op : U -> U -> U) (phi : E -> An -> U) (T : An -> An -> U -> U)
    (holds : E -> An -> Prop) (moves : An -> An -> Prop) : Prop := {
  O2_holds : forall x A A', holds x A -> moves A A' -> holds x A';
  O2 : forall x A A', holds x A -> moves A A' -> T A A' (phi x A) = phi x A';
  O3_moves : forall A B C, moves A B -> moves B C -> moves A C;
  O3 : forall A B C u, moves A B -> moves B C -> T B C (T A B u) = T A C u;
  O3_still : forall A u, moves A A -> T A A u = u;
  O4 : forall u v w, op (op u v) w = op u (op v w);
  O5 : forall A B u v, moves A B -> T A B (op u v) = op (T A B u) (T A B v)
}.

Section Moving.
  Variables (E An U : Type) (op : U -> U -> U) (phi : E -> An -> U) (T : An -> An -> U -> U).
  Variables (holds : E -> An -> Prop) (moves : An -> An -> Prop).
  Hypothesis laws : moving op phi T holds moves.

  Definition held : Type := (An * U)%type.
  (** The policies: where one element is held, and where two states meet. Both are free. *)
  Variables (first : E -> An) (meet : held -> held -> An).
  Definition held_lift (x : E) : held := (first x, phi x (first x)).
  Definition held_combine (a b : held) : held :=
    (meet a b, op (T (fst a) (meet a b) (snd a)) (T (fst b) (meet a b) (snd b))).

  (** [sound]: an invariant of the states the policies produce, for policies that need one. *)
  Variable sound : held -> Prop.
  Hypothesis first_holds : forall x, holds x (first x) /\ sound (held_lift x).
  Hypothesis meet_moves : forall a b, sound a -> sound b ->
    moves (fst a) (meet a b) /\ moves (fst b) (meet a b) /\ sound (held_combine a b).

  (** The state holds every element of the stream at its anchor. *)
  Definition holding (xs : list E) (s : held) : Prop :=
    sound s /\ Forall (fun x => holds x (fst s)) xs /\ reduce op (map (fun x => phi x (fst s)) xs) = Some (snd s).

  Lemma moved_total : forall A B xs u, moves A B -> Forall (fun x => holds x A) xs ->
    reduce op (map (fun x => phi x A) xs) = Some u -> reduce op (map (fun x => phi x B) xs) = Some (T A B u).
  Proof.
    intros A B xs u HAB Hx Hu.
    replace (map (fun x => phi x B) xs) with (map (T A B) (map (fun x => phi x A) xs)).
    - rewrite <- (reduce_map op op (T A B)); [now rewrite Hu |]. intros. now apply (O5 laws).
    - rewrite map_map. apply map_ext_in. intros x Hin. rewrite Forall_forall in Hx. apply (O2 laws); auto.
  Qed.

  Theorem holding_combine : forall xs ys a b, holding xs a -> holding ys b -> holding (xs ++ ys) (held_combine a b).
  Proof.
    intros xs ys a b (Sa & Hx & Hu) (Sb & Hy & Hv).
    destruct (meet_moves Sa Sb) as (Ma & Mb & S'). split; [assumption |]. split.
    - apply Forall_app. cbn. split; [revert Hx | revert Hy]; apply Forall_impl; intros x H;
        eapply (O2_holds laws); eauto.
    - cbn. rewrite map_app, (reduce_app op (O4 laws)).
      now rewrite (moved_total Ma Hx Hu), (moved_total Mb Hy Hv).
  Qed.

  Theorem holding_lift : forall x, holding [x] (held_lift x).
  Proof. intros x. destruct (first_holds x). repeat constructor; auto. Qed.

  (** Whatever the tree and the policies: the state is the total of the stream at its anchor. *)
  Theorem moving_bracketing : forall t, represents holding (leaves t) (run held_lift held_combine t).
  Proof. apply every_bracketing; [apply holding_lift | intros; now apply holding_combine]. Qed.

  (** combine is associative up to the choice of anchors: moved to one place, both bracketings are the same. *)
  Theorem combine_associative : forall a b c D, sound a -> sound b -> sound c ->
    let l := held_combine (held_combine a b) c in let r := held_combine a (held_combine b c) in
    moves (fst l) D -> moves (fst r) D -> T (fst l) D (snd l) = T (fst r) D (snd r).
  Proof.
    intros a b c D Sa Sb Sc l r Ml Mr. unfold l, r in *. clear l r.
    destruct (meet_moves Sa Sb) as (Mab & Mba & Sab). destruct (meet_moves Sb Sc) as (Mbc & Mcb & Sbc).
    destruct (meet_moves Sab Sc) as (M1 & M2 & _). destruct (meet_moves Sa Sbc) as (M3 & M4 & _).
    unfold held_combine in *. cbn in *. rewrite !(O5 laws) by eauto.
    repeat rewrite (O3 laws) by (eauto using (O3_moves laws)). apply (O4 laws).
  Qed.

  Theorem combine_commutative : (forall u v, op u v = op v u) -> forall a b D, sound a -> sound b ->
    let l := held_combine a b in let r := held_combine b a in
    moves (fst l) D -> moves (fst r) D -> T (fst l) D (snd l) = T (fst r) D (snd r).
  Proof.
    intros C a b D Sa Sb l r Ml Mr. unfold l, r in *. clear l r.
    destruct (meet_moves Sa Sb) as (M1 & M2 & _). destruct (meet_moves Sb Sa) as (M3 & M4 & _).
    unfold held_combine in *. cbn in *. rewrite !(O5 laws) by eauto.
    repeat rewrite (O3 laws) by eauto. apply C.
  Qed.

  (** The definition of a stage is [reduce[j](F x_j D)]; O1 separates its body. *)
  Section Separated.
    Variables (D V : Type) (opV : V -> V -> V) (F : E -> D -> V) (H : D -> An -> U -> V).

    Definition separates (d : D) (A : An) (xs : list E) : Prop :=
      (forall x, In x xs -> holds x A -> F x d = H d A (phi x A))
      /\ (forall u v, H d A (op u v) = opV (H d A u) (H d A v)).

    Theorem holding_value : forall xs s d, holding xs s -> separates d (fst s) xs ->
      reduce opV (map (fun x => F x d) xs) = Some (H d (fst s) (snd s)).
    Proof.
      intros xs [A u] d (_ & Hx & Hu) (O1 & O5'). cbn in *.
      replace (map (fun x => F x d) xs) with (map (H d A) (map (fun x => phi x A) xs)).
      - rewrite <- (reduce_map op opV (H d A)) by auto. now rewrite Hu.
      - rewrite map_map. apply map_ext_in. intros x Hin. symmetry. rewrite Forall_forall in Hx. auto.
    Qed.

    Theorem separated_bracketing : (forall d A xs, separates d A xs) -> forall t d,
      option_map (fun s => H d (fst s) (snd s)) (run held_lift held_combine t)
      = reduce opV (map (fun x => F x d) (leaves t)).
    Proof.
      intros O1 t d. pose proof (moving_bracketing t) as R.
      destruct (run held_lift held_combine t) as [s|]; simpl in R |- *.
      - destruct R as [_ R]. symmetry. now apply holding_value.
      - now rewrite R.
    Qed.

    Theorem separated_permutation : (forall d A xs, separates d A xs) ->
      (forall u v w, opV (opV u v) w = opV u (opV v w)) -> (forall u v, opV u v = opV v u) ->
      forall t d xs, Permutation (leaves t) xs ->
      option_map (fun s => H d (fst s) (snd s)) (run held_lift held_combine t) = reduce opV (map (fun x => F x d) xs).
    Proof.
      intros O1 As Co t d xs P. rewrite separated_bracketing by auto.
      now apply reduce_permutation, Permutation_map.
    Qed.
  End Separated.
End Moving.
