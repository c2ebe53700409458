(** * Order reductions: maxima, minima and the first position of a maximum (theory, section 2.3).

    - [rmax_attained], [rmax_upper], [rmax_unique]: what the maximum of a non-empty stream is;
    - [rmax_monotone], [rmax_antitone]: a monotone map pulls out; [rmax_times]: a direction that depends on D;
    - [rmax_shift], [rmax_abs], [rmax_square]: splitting |x - d| and (x - d)²;
    - [any_above]: any(F > t) is max F > t;
    - [argmax_bracketing], [argmax_first], [argmax_strict]: the first largest element, as an associative (and not
      commutative: [argmax_order]) monoid that a strictly increasing map leaves alone. *)

From Coq Require Import List Permutation Reals Lra Lia.
From Redalg Require Import Fold Transport.
Import ListNotations.
Open Scope R_scope.
Set Implicit Arguments.

(** ** Maximum and minimum of a non-empty list [x :: xs] *)

Definition rmax (x : R) (xs : list R) : R := fold_right Rmax x xs.
Definition rmin (x : R) (xs : list R) : R := fold_right Rmin x xs.

Lemma Rmax_assoc' : forall a b c, Rmax (Rmax a b) c = Rmax a (Rmax b c).
Proof. intros. now rewrite Rmax_assoc. Qed.

Lemma Rmin_assoc' : forall a b c, Rmin (Rmin a b) c = Rmin a (Rmin b c).
Proof. intros. now rewrite Rmin_assoc. Qed.

Lemma reduce_fold_right : forall (op : R -> R -> R), (forall a b c, op (op a b) c = op a (op b c)) ->
  (forall a b, op a b = op b a) -> forall x xs, reduce op (x :: xs) = Some (fold_right op x xs).
Proof.
  intros op As Co.
  assert (Sw : forall x y xs, op x (fold_right op y xs) = op y (fold_right op x xs)).
  { intros x y. induction xs as [|z xs IH]; simpl; auto.
    now rewrite <- As, (Co x z), As, IH, <- As, (Co z y), As. }
  intros x xs. revert x. induction xs as [|y xs IH]; intros x; [reflexivity |].
  change (reduce op (x :: y :: xs)) with (adjoin op (Some x) (reduce op (y :: xs))).
  rewrite IH. simpl. f_equal. apply Sw.
Qed.

Lemma rmax_reduce : forall x xs, reduce Rmax (x :: xs) = Some (rmax x xs).
Proof. apply reduce_fold_right; auto using Rmax_assoc', Rmax_comm. Qed.

Lemma rmin_reduce : forall x xs, reduce Rmin (x :: xs) = Some (rmin x xs).
Proof. apply reduce_fold_right; auto using Rmin_assoc', Rmin_comm. Qed.

Theorem max_bracketing : forall E (f : E -> R) t xs, Permutation (leaves t) xs -> run f Rmax t = reduce Rmax (map f xs).
Proof. intros. apply semigroup_permutation; auto using Rmax_assoc', Rmax_comm. Qed.

Theorem min_bracketing : forall E (f : E -> R) t xs, Permutation (leaves t) xs -> run f Rmin t = reduce Rmin (map f xs).
Proof. intros. apply semigroup_permutation; auto using Rmin_assoc', Rmin_comm. Qed.

Theorem rmax_attained : forall x xs, In (rmax x xs) (x :: xs).
Proof.
  intros x xs. induction xs as [|y xs IH]; [now left |]. cbn [rmax fold_right].
  apply Rmax_case; [right; left; reflexivity | destruct IH; [now left | now right; right]].
Qed.

Theorem rmax_upper : forall x xs y, In y (x :: xs) -> y <= rmax x xs.
Proof.
  intros x xs y. induction xs as [|z xs IH]; intros [->|H].
  - simpl; lra.
  - destruct H.
  - simpl. eapply Rle_trans; [| apply Rmax_r]. apply IH. now left.
  - simpl. destruct H as [->|H]; [apply Rmax_l |]. eapply Rle_trans; [| apply Rmax_r]. apply IH. now right.
Qed.

Theorem rmax_unique : forall x xs m, In m (x :: xs) -> (forall y, In y (x :: xs) -> y <= m) -> rmax x xs = m.
Proof. intros. apply Rle_antisym; [apply H0, rmax_attained | now apply rmax_upper]. Qed.

(** min x = - max (-x), so that every law of one is a law of the other. *)
Lemma rmin_opp : forall x xs, rmin x xs = - rmax (- x) (map Ropp xs).
Proof.
  induction xs as [|y xs IH]; simpl; [ring |]. unfold rmin, rmax in *. rewrite IH.
  generalize (fold_right Rmax (- x) (map Ropp xs)). intros. unfold Rmin, Rmax. repeat destruct Rle_dec; lra.
Qed.

Theorem rmin_attained : forall x xs, In (rmin x xs) (x :: xs).
Proof.
  intros. rewrite rmin_opp. change (- x :: map Ropp xs) with (map Ropp (x :: xs)).
  destruct (proj1 (in_map_iff Ropp (x :: xs) _) (rmax_attained (- x) (map Ropp xs))) as (y & Hy & Hin).
  rewrite <- Hy, Ropp_involutive. assumption.
Qed.

Theorem rmin_lower : forall x xs y, In y (x :: xs) -> rmin x xs <= y.
Proof.
  intros x xs y H. rewrite rmin_opp.
  pose proof (@rmax_upper (- x) (map Ropp xs) (- y) (in_map Ropp (x :: xs) y H)). lra.
Qed.

(** Slots anchored on a running maximum: the anchor is the maximum of the stream, for every tree. *)
Theorem extremum_anchor : forall E I (g : E -> R) (phi : E -> R -> I -> R) T t A u,
  form phi T g (fun a b => Rmax (fst a) (fst b)) t = Some (A, u) -> reduce Rmax (map g (leaves t)) = Some A.
Proof.
  intros E I g phi T t A u H. apply (f_equal (option_map fst)) in H. cbn in H. unfold form in H.
  rewrite (run_map _ g _ Rmax) in H by reflexivity. now rewrite <- H, (max_bracketing g t (Permutation_refl _)).
Qed.

(** ** Pulling maps out *)

Lemma Rmax_monotone : forall (phi : R -> R) a b, (forall u v, u <= v -> phi u <= phi v) ->
  Rmax (phi a) (phi b) = phi (Rmax a b).
Proof.
  intros phi a b H. destruct (Rle_dec a b) as [L|L].
  - rewrite !Rmax_right; auto.
  - rewrite !Rmax_left; auto; try apply H; lra.
Qed.

Theorem rmax_monotone : forall (phi : R -> R) x xs, (forall u v, u <= v -> phi u <= phi v) ->
  rmax (phi x) (map phi xs) = phi (rmax x xs).
Proof. induction xs as [|y xs IH]; intros H; simpl; auto. unfold rmax in *. rewrite IH by auto. now apply Rmax_monotone. Qed.

Theorem rmax_antitone : forall (phi : R -> R) x xs, (forall u v, u <= v -> phi v <= phi u) ->
  rmax (phi x) (map phi xs) = phi (rmin x xs).
Proof.
  intros phi x xs H. rewrite rmin_opp.
  rewrite <- (rmax_monotone (fun u => phi (- u))) by (intros; apply H; lra).
  rewrite map_map, Ropp_involutive. f_equal. apply map_ext. intros. now rewrite Ropp_involutive.
Qed.

Theorem rmin_monotone : forall (phi : R -> R) x xs, (forall u v, u <= v -> phi u <= phi v) ->
  rmin (phi x) (map phi xs) = phi (rmin x xs).
Proof.
  intros phi x xs H. rewrite !rmin_opp, map_map.
  replace (map (fun y => - phi y) xs) with (map (fun u => - phi (- u)) (map Ropp xs))
    by (rewrite map_map; apply map_ext; intros; now rewrite Ropp_involutive).
  replace (- phi x) with ((fun u => - phi (- u)) (- x)) by (cbv beta; now rewrite Ropp_involutive).
  rewrite (rmax_monotone (fun u => - phi (- u))); [cbv beta; ring | intros u v Huv; apply Ropp_le_contravar, H; lra].
Qed.

(** Only on the elements that occur: [phi] need not be monotone elsewhere. *)
Theorem rmax_monotone_on : forall (phi : R -> R) x xs,
  (forall u v, In u (x :: xs) -> In v (x :: xs) -> u <= v -> phi u <= phi v) ->
  rmax (phi x) (map phi xs) = phi (rmax x xs).
Proof.
  intros phi x xs H. apply rmax_unique.
  - change (phi x :: map phi xs) with (map phi (x :: xs)). apply in_map, rmax_attained.
  - change (phi x :: map phi xs) with (map phi (x :: xs)). intros y Hy. apply in_map_iff in Hy.
    destruct Hy as (z & <- & Hz). apply H; auto using rmax_attained, rmax_upper.
Qed.

(** The direction depends on D: keep both extrema, select in finalize. *)
Theorem rmax_times : forall d x xs,
  rmax (x * d) (map (fun y => y * d) xs) = if Rle_dec 0 d then rmax x xs * d else rmin x xs * d.
Proof.
  intros d x xs. destruct Rle_dec as [L|L].
  - apply (rmax_monotone (fun y => y * d)). intros. now apply Rmult_le_compat_r.
  - apply (rmax_antitone (fun y => y * d)). intros u v H.
    assert (0 <= - d * (v - u)) by (apply Rmult_le_pos; lra). lra.
Qed.

Theorem rmax_shift : forall d x xs, rmax (x - d) (map (fun y => y - d) xs) = rmax x xs - d.
Proof. intros. apply (rmax_monotone (fun y => y - d)). intros. lra. Qed.

(** A maximum of maxima splits; so do |x - d| and (x - d)². *)
Theorem rmax_split : forall (f g : R -> R) x xs,
  rmax (Rmax (f x) (g x)) (map (fun y => Rmax (f y) (g y)) xs) = Rmax (rmax (f x) (map f xs)) (rmax (g x) (map g xs)).
Proof.
  induction xs as [|y xs IH]; simpl; auto. unfold rmax in *. rewrite IH.
  generalize (fold_right Rmax (f x) (map f xs)), (fold_right Rmax (g x) (map g xs)). intros.
  unfold Rmax. repeat destruct Rle_dec; lra.
Qed.

Lemma Rabs_max : forall a, Rabs a = Rmax a (- a).
Proof. intros. unfold Rabs, Rmax. destruct Rcase_abs, Rle_dec; lra. Qed.

Theorem rmax_abs : forall d x xs,
  rmax (Rabs (x - d)) (map (fun y => Rabs (y - d)) xs) = Rmax (rmax x xs - d) (d - rmin x xs).
Proof.
  intros. rewrite Rabs_max, (map_ext _ _ (fun y => Rabs_max (y - d))).
  rewrite (rmax_split (fun y => y - d) (fun y => - (y - d))), rmax_shift. f_equal.
  rewrite (rmax_antitone (fun y => - (y - d))) by (intros; lra). ring.
Qed.

Theorem rmax_square : forall d x xs,
  rmax ((x - d) ^ 2) (map (fun y => (y - d) ^ 2) xs) = Rmax (rmax x xs - d) (d - rmin x xs) ^ 2.
Proof.
  intros. rewrite <- rmax_abs, <- (pow2_abs (x - d)), (map_ext _ _ (fun y => eq_sym (pow2_abs (y - d)))).
  rewrite <- (map_map (fun y => Rabs (y - d)) (fun a => a ^ 2)).
  apply (rmax_monotone_on (fun a => a ^ 2)). intros u v Hu Hv H.
  assert (0 <= u) by (destruct Hu as [<-|Hu]; [apply Rabs_pos |]; apply in_map_iff in Hu; destruct Hu as (z & <- & _); apply Rabs_pos).
  apply pow_incr. lra.
Qed.

(** any(F > t) is max F > t, all(F > t) is min F > t. *)
Theorem any_above : forall t x xs, (exists y, In y (x :: xs) /\ t < y) <-> t < rmax x xs.
Proof.
  intros; split.
  - intros (y & H & L). apply rmax_upper in H. lra.
  - intros L. exists (rmax x xs). auto using rmax_attained.
Qed.

Theorem all_above : forall t x xs, (forall y, In y (x :: xs) -> t < y) <-> t < rmin x xs.
Proof.
  intros; split.
  - intros H. apply H, rmin_attained.
  - intros L y H. apply rmin_lower in H. lra.
Qed.

(** ** The first position of the maximum

    A state is (value, what it carries); the left one wins ties, so that streams keep their lowest position. *)

Section Argmax.
  Variable P : Type.
  Definition pick (a b : R * P) : R * P := if Rlt_dec (fst a) (fst b) then b else a.

  Lemma pick_assoc : forall a b c, pick (pick a b) c = pick a (pick b c).
  Proof. intros [a p] [b q] [c r]. unfold pick. cbn. repeat (destruct Rlt_dec; cbn in *); auto; lra. Qed.

  Lemma pick_value : forall a b, fst (pick a b) = Rmax (fst a) (fst b).
  Proof. intros [a p] [b q]. unfold pick, Rmax. cbn. destruct Rlt_dec, Rle_dec; cbn; lra. Qed.

  (** The definition: the first element of the stream whose value no other exceeds. *)
  Definition first_largest (xs : list (R * P)) (m : R * P) : Prop :=
    exists before after, xs = before ++ m :: after
      /\ Forall (fun y => fst y < fst m) before /\ Forall (fun y => fst y <= fst m) after.

  Theorem argmax_step : forall xs ys a b, first_largest xs a -> first_largest ys b -> first_largest (xs ++ ys) (pick a b).
  Proof.
    intros xs ys a b (u & v & -> & Hu & Hv) (w & z & -> & Hw & Hz). unfold pick. destruct Rlt_dec as [L|L].
    - exists (u ++ a :: v ++ w), z. split; [now rewrite <- !app_assoc, <- !app_comm_cons, <- !app_assoc |].
      split; auto. rewrite Forall_app, Forall_cons_iff, Forall_app.
      repeat split; auto; (eapply Forall_impl; [| eassumption]); cbn; intros; lra.
    - exists u, (v ++ w ++ b :: z). split; [now rewrite <- app_assoc, <- app_comm_cons |].
      split; auto. rewrite !Forall_app, Forall_cons_iff.
      repeat split; auto; try lra; (eapply Forall_impl; [| eassumption]); cbn; intros; lra.
  Qed.

  Theorem argmax_bracketing : forall E (f : E -> R * P) t,
    represents (fun xs => first_largest (map f xs)) (leaves t) (run f pick t).
  Proof.
    intros. apply every_bracketing.
    - intros x. exists [], []. auto.
    - intros. rewrite map_app. now apply argmax_step.
  Qed.

  Theorem argmax_reduce : forall E (f : E -> R * P) t, run f pick t = reduce pick (map f (leaves t)).
  Proof. intros. apply semigroup_bracketing, pick_assoc. Qed.

  Theorem argmax_first : forall xs m n, first_largest xs m -> first_largest xs n -> m = n.
  Proof.
    intros xs m n (u & v & -> & Hu & Hv) (w & z & E & Hw & Hz). revert w E Hw. induction u as [|x u IH]; intros [|y w] E Hw.
    - now injection E.
    - injection E as <- E. inversion_clear Hw. subst v. rewrite Forall_app, Forall_cons_iff in Hv. lra.
    - injection E as -> E. inversion_clear Hu. subst z. rewrite Forall_app, Forall_cons_iff in Hz. lra.
    - injection E as -> E. inversion_clear Hu. inversion_clear Hw. eauto.
  Qed.

  (** A map pulls out of an argmax if it is strictly increasing on the values that occur: not relu, not x·0. *)
  Theorem argmax_strict : forall (phi : R -> R) xs m,
    (forall u v, In u (map fst xs) -> In v (map fst xs) -> u < v -> phi u < phi v) ->
    first_largest xs m -> first_largest (map (fun y => (phi (fst y), snd y)) xs) (phi (fst m), snd m).
  Proof.
    intros phi xs m H (u & v & -> & Hu & Hv).
    exists (map (fun y => (phi (fst y), snd y)) u), (map (fun y => (phi (fst y), snd y)) v).
    rewrite map_app. split; auto. rewrite map_app in H. cbn in H.
    rewrite !Forall_map. rewrite Forall_forall in Hu, Hv. split; apply Forall_forall; intros y Hy; cbn.
    - apply H; [apply in_or_app; left; now apply in_map | apply in_or_app; right; now left | auto].
    - destruct (Rle_lt_or_eq_dec _ _ (Hv y Hy)) as [L| ->]; [| lra]. left.
      apply H; [apply in_or_app; right; right; now apply in_map | apply in_or_app; right; now left | auto].
  Qed.
End Argmax.

(** Not commutative: with a tie the order decides. *)
Theorem argmax_order : exists a b : R * nat, pick a b <> pick b a.
Proof.
  exists (0, 0%nat), (0, 1%nat). unfold pick. cbn. destruct Rlt_dec; [lra |]. discriminate.
Qed.

(** Strictness is needed: relu is monotone, and moves the argmax of (-1, 0, ...) from position 1 to position 0. *)
Theorem argmax_relu : exists xs m, first_largest xs m /\
  ~ first_largest (map (fun y => (Rmax 0 (fst y), snd y)) xs) (Rmax 0 (fst m), snd m : nat).
Proof.
  exists [(-1, 0%nat); (0, 1%nat)], (0, 1%nat). split.
  - exists [(-1, 0%nat)], []. repeat split; auto. constructor; auto. cbn. lra.
  - intros H. assert (H0 : first_largest (map (fun y => (Rmax 0 (fst y), snd y)) [(-1, 0%nat); (0, 1%nat)]) (0, 0%nat)).
    + exists [], [(0, 1%nat)]. cbn. rewrite !Rmax_left by lra. repeat split; auto. constructor; auto. cbn. lra.
    + cbn [fst snd] in H. pose proof (argmax_first H H0). congruence.
Qed.
