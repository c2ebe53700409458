"""The form of a certificate as a fold in Gallina, and the theorem that it is the spec's definition.

`proofs/theories/Form.v` proves once, for every tree over the stream, that a form's state holds what its parts mean. Here
are printed the parts (orders, anchors, slots, moves), the laws they need, and per output the theorem: whatever the
policies, the bracketing and (where every ⊕ commutes) the order, finalize of the state is the definition of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from redalg.proofs.denotation import COUNT
from redalg.proofs.document import Anchor, Document, Output, Pass, Slot
from redalg.proofs.rocq_words import Unprintable, Words, applied, identifier
from redalg.proofs.terms import Term, leaves, walk

ORDERS = {  # kind: type, operation, reduction
    "max": ("R", "Rmax", "lmax"),
    "min": ("R", "Rmin", "lmin"),
    "prod": ("R", "Rmult", "lprod"),
    "any": ("bool", "orb", "lany"),
    "all": ("bool", "andb", "lall"),
}
Reader = Callable[[list[str]], str]
OWN = (  # what the printed section calls its own
    "order val op orders_of free slot avg phi rows valid moves opened laws always_valid associative commutative T anchor "
    "state Count count at_ slots fst snd run stream leaves Permutation Form Some None".split()
)


class FormWords(Words):
    """Words in which the parts of the state are read from where the text stands."""

    def __init__(self, stream: Iterable[str], roots: Iterable[Term], axes: Iterable[str]) -> None:
        super().__init__(stream, roots)
        self.bound |= set(axes)
        self.readers: dict[str, Reader] = {}
        self.names |= {("own", word): word for word in OWN}

    def _state(self, t: Term) -> str:
        name = t.attr.name
        if name not in self.readers:
            raise Unprintable(f"the form reads {name} where it is not printed")
        along = [a for k, a in enumerate(t.attr.axes) if self.functional("state", name, k)]
        return self.readers[name]([self.position(a) for a in along])


class PrintedForm:
    """The Gallina text of one document's form; `theorems` are the names of what it proves."""

    def __init__(self, doc: Document, proved: dict[str, str]) -> None:
        """`proved`: of each output, the lemma that its finalize on the whole stream is the definition."""
        if len(doc.passes) != 1 or len(doc.axis) != 1:
            raise Unprintable("a form of several passes, or over several axes at once")
        self.doc, self.proved = doc, proved
        self.form: Pass = doc.passes[0]
        self.words = FormWords(doc.axis, self._roots(), doc.axis)
        self.axis = doc.axis[0]
        self.theorems: list[str] = []
        self._check()

    def _roots(self) -> list[Term]:
        p, doc = self.form, self.doc
        found = [b for s in p.slots for b in s.lift] + [m.coefficient for s in p.slots for m in s.moves]
        found += [a.target for a in p.anchors if a.target is not None]
        return found + [o.value for o in doc.outputs] + list(doc.spec.values())

    def _check(self) -> None:
        for s in self.form.slots:
            if s.kind not in ORDERS and s.kind != "sum":
                raise Unprintable(f"a slot of kind {s.kind}")
            if s.vanishes:
                raise Unprintable("the lean form drops a slot that the obligations speak of")
        declared = {a.name: a.axes for a in self.form.anchors} | {s.name: s.axes for s in self.form.slots}
        for leaf in leaves(*self._roots()):
            own = declared.get(leaf.attr.name.removeprefix("shift:"), leaf.attr.axes)
            renamed = [k for k, (a, b) in enumerate(zip(own, leaf.attr.axes, strict=False)) if a != b]
            if any(not self.words.functional("state", leaf.attr.name, k) for k in renamed):
                raise Unprintable(f"{leaf.attr.name} is read along another axis than its own")
        for t in walk(*self._roots()):
            if t.op == "special" and t.attr in ("oo", "-oo", "nan"):
                raise Unprintable("an infinity or NaN in the form is no real number")

    # --- names ---

    @property
    def orders(self) -> list[Slot]:
        return [s for s in self.form.slots if s.kind in ORDERS]

    @property
    def sums(self) -> list[Slot]:
        return [s for s in self.form.slots if s.kind == "sum"]

    def places(self, part: Anchor | Slot) -> list[str]:
        """The axes of a part that are arguments of its constructor."""
        return [a for k, a in enumerate(part.axes) if self.words.functional("state", part.name, k)]

    def constructor(self, name: str) -> str:
        return f"At_{identifier(name)}"

    def pattern(self, part: Anchor | Slot) -> str:
        return " ".join([self.constructor(part.name), *self.places(part)])

    def _inductive(self, name: str, parts: Iterable[Anchor | Slot], first: list[str] | None = None) -> str:
        cases = [*(first or [])]
        for x in parts:
            own = "".join(f" ({a} : nat)" for a in self.places(x))
            cases.append(f"{self.constructor(x.name)}{own}")
        return f"Inductive {name} : Set := {' | '.join(cases)}."

    def _match(self, on: str, result: str, cases: list[tuple[str, str]]) -> str:
        body = " ".join(f"| {p} => {text}" for p, text in cases)
        return f"match {on} return {result} with {body} end"

    # --- reading the state ---

    def _with(self, readers: dict[str, Reader], bound: Iterable[str], term: Term) -> str:
        self.words.readers = readers
        return self.words.within(list(dict.fromkeys(bound)), term)

    def anchors_at(self, anchor: str) -> dict[str, Reader]:
        names = [a.name for a in self.form.anchors]
        return {n: (lambda args, n=n: applied(identifier(n), [anchor, *args])) for n in names}

    def orders_at(self, orders: str) -> dict[str, Reader]:
        return {
            s.parts[0]: (lambda args, s=s: f"({orders} {applied(self.constructor(s.name), args)})") for s in self.orders
        }

    def state_at(self) -> dict[str, Reader]:
        found: dict[str, Reader] = {
            s.parts[0]: (lambda args, s=s: f"(slots _s {applied(self.constructor(s.name), args)})") for s in self.sums
        }
        found[COUNT] = lambda args: "(INR (count _s))"
        return found | self.orders_at("fst (at_ _s)") | self.anchors_at("(at_ _s)")

    def shifts(self) -> dict[str, Reader]:
        found: dict[str, Reader] = {}
        for a in self.form.anchors:
            name, sign = identifier(a.name), a.kind

            def read(args: list[str], name: str = name, sign: str = sign) -> str:
                old, new = applied(name, ["_A", *args]), applied(name, ["_B", *args])
                return f"({new} - {old})" if sign == "add" else f"({old} * / {new})"

            found[f"shift:{a.name}"] = read
        return found

    # --- the parts ---

    def parts(self) -> str:
        orders, free = self.orders, [a for a in self.form.anchors if a.target is None]
        lines = [self._inductive("order", orders)]
        kinds = {s.name: ORDERS[s.kind] for s in orders}
        case = [(self.pattern(s), kinds[s.name][0]) for s in orders]
        lines.append(f"Definition val (_o : order) : Type := {self._match('_o', 'Type', case)}.")
        case = [(self.pattern(s), kinds[s.name][1]) for s in orders]
        ops = self._match("_o", "val _o -> val _o -> val _o", case)
        lines.append(f"Definition op (_o : order) : val _o -> val _o -> val _o := {ops}.")
        case = [(self.pattern(s), self._with({}, [self.axis, *self.places(s)], s.lift[0])) for s in orders]
        value = self._match("_o", "val _o", case)
        lines.append(f"Definition orders_of ({self.axis} : nat) (_o : order) : val _o := {value}.")
        lines.append(self._inductive("free", free))
        lines += [self._anchor(a) for a in self.form.anchors]
        lines.append(self._inductive("slot", self.sums, ["Count"]))
        case = [("Count", "false"), *((self.pattern(s), str(s.average).lower()) for s in self.sums)]
        lines.append(f"Definition avg (_i : slot) : bool := {self._match('_i', 'bool', case)}.")
        at = self.anchors_at("_A")
        case = [("Count", "1")]
        case += [(self.pattern(s), self._with(at, [self.axis, *self.places(s)], s.lift[0])) for s in self.sums]
        phi = self._match("_i", "R", case)
        lines.append(f"Definition phi ({self.axis} : nat) (_A : anchor val (free -> R)) (_i : slot) : R := {phi}.")
        kind = "list ((anchor val (free -> R) -> anchor val (free -> R) -> R) * slot)"
        case = [("Count", "[(fun _ _ => 1, Count)]"), *((self.pattern(s), self._moves(s)) for s in self.sums)]
        lines.append(f"Definition rows (_i : slot) : {kind} := {self._match('_i', kind, case)}.")
        return "\n".join(lines)

    def _anchor(self, a: Anchor) -> str:
        own = "".join(f" ({x} : nat)" for x in self.places(a))
        if a.target is None:
            value = f"snd _A {applied(self.constructor(a.name), self.places(a))}"
        else:
            value = self._with(self.orders_at("fst _A"), self.places(a), a.target)
        return f"Definition {identifier(a.name)} (_A : anchor val (free -> R)){own} : R := {value}."

    def _moves(self, s: Slot) -> str:
        if not s.moves:
            return f"[(fun _ _ => 1, {applied(self.constructor(s.name), self.places(s))})]"
        by_name = {x.name: x for x in self.sums}
        entries = []
        for m in s.moves:
            coefficient = self._with(self.shifts(), self.places(s), m.coefficient)
            source = "Count"
            if m.slot != COUNT:
                source = applied(self.constructor(m.slot), self.places(by_name[m.slot]))
            entries.append(f"(fun _A _B => {coefficient}, {source})")
        return f"[{'; '.join(entries)}]"

    # --- the laws ---

    def laws(self) -> str:
        scales = [a for a in self.form.anchors if a.kind == "mul"]
        if any(self.places(a) for a in scales):
            raise Unprintable("scales along an axis that is reduced")
        valid = " /\\ ".join(f"{identifier(a.name)} _A <> 0" for a in scales) or "True"
        names = " ".join(identifier(a.name) for a in self.form.anchors)
        unfolded = f"unfold valid{', ' + ', '.join(names.split()) if names else ''}"
        return f"""Definition valid (_A : anchor val (free -> R)) : Prop := {valid}.
Definition moves (_A _B : anchor val (free -> R)) : Prop := valid _A /\\ valid _B.
Ltac opened := unfold T; cbv beta iota delta [rows phi fst snd]; rewrite ?lsum_cons, ?lsum_nil.
Lemma always_valid : forall _A, valid _A.
Proof. intros _A. {unfolded}. redalg_finish. Qed.
Lemma laws : moving (@fplus slot) phi (T rows) (fun _ _A => valid _A) moves.
Proof.
  apply linear_moving; unfold moves.
  - tauto.
  - unfold valid. intros _j _A _B _i _ _M. destruct _i; repeat progress opened; redalg_finish.
  - tauto.
  - unfold valid. intros _A _B _C _u _i _M _N. destruct _i; repeat progress opened; redalg_finish.
  - unfold valid. intros _A _u _i _M. destruct _i; repeat progress opened; redalg_finish.
Qed.
Lemma associative : forall _o (_a _b _c : val _o), op _o (op _o _a _b) _c = op _o _a (op _o _b _c).
Proof. intros []; cbn; redalg_finish. Qed.
Lemma commutative : forall _o (_a _b : val _o), op _o _a _b = op _o _b _a.
Proof. intros []; cbn; redalg_finish. Qed.
"""

    # --- the theorems ---

    def theorem(self, o: Output) -> str:
        name = identifier(o.name)
        own = [a for a in o.axes if a in self.words.bound and a != self.axis]
        own += [self.axis] if o.keeps_axis else []
        places = "".join(f" ({a} : nat)" for a in own)
        kind = "bool" if self.doc.spec[o.name].is_boolean else "R"
        value = self._with(self.state_at(), own, o.value)
        definition = self._with({}, own, self.doc.spec[o.name])
        js = self.words.list_of(self.axis)
        facts = self._facts(o)
        run = "(Form.lift orders_of phi _first) (Form.combine op avg rows _meet)"
        finalize = applied(f"finalize_{name}", own)
        stated = f"{''.join(f'{f} -> ' for f in facts)}option_map {finalize}"
        orders = "\n  ".join(self._order_fact(s, js) for s in self.orders)
        names = [identifier(a.name) for a in self.form.anchors]
        unfolded = f"unfold {', '.join(names)} in *. " if names else ""
        self.theorems += [f"form_is_{name}", f"stream_is_{name}"]
        return f"""Definition finalize_{name}{places} (_s : state val (free -> R) slot) : {kind} := {value}.
Theorem form_is_{name} : forall _first _meet _t {js}{places}, Permutation (leaves _t) {js} -> {js} <> [] -> {stated}
    (run {run} _t) = Some {definition}.
Proof.
  intros _first _meet _t {js}{"".join(f" {a}" for a in own)} _P _N{"".join(f" _D{k}" for k in range(len(facts)))}.
  destruct (form_permutation op orders_of avg valid _first _meet associative laws
    (fun _ => conj (always_valid _) (always_valid _))
    (fun _a _b _U _V => conj (conj _U (always_valid _)) (conj (conj _V (always_valid _)) (always_valid _)))
    commutative _t _P _N) as (_o & _m & _u & _E & _Ho & _Hu & _).
  unfold run in *. rewrite _E. clear _E. cbn [option_map]. f_equal.
  unfold finalize_{name}, at_, slots, count. cbn [fst snd].
  rewrite ?_Hu. clear _Hu. unfold meant. cbv beta iota delta [avg phi]. {unfolded}cbn [fst snd].
  {orders}
  unfold Rdiv. apply {self.proved[o.name]}; auto.
Qed.
Theorem stream_is_{name} : forall _first _meet {js}{places}, {js} <> [] -> {stated}
    (stream {run} {js}) = Some {definition}.
Proof. intros. rewrite stream_is_a_tree. apply form_is_{name}; auto. now rewrite leaves_comb. Qed.
"""

    def _order_fact(self, s: Slot, js: str) -> str:
        kind, op, word = ORDERS[s.kind]
        zero = {"lmax": "0", "lmin": "0", "lprod": "1", "lany": "false", "lall": "true"}[word]
        own = self.places(s)
        key = applied(self.constructor(s.name), own)
        body = self._with({}, [self.axis, *own], s.lift[0])
        reduced = f"{word} (fun {self.axis} : nat => {body}) {js}"
        if own:
            raise Unprintable("an extremum along an axis that is reduced")
        return (
            f"assert (_Q_{identifier(s.name)} : _o {key} = {reduced}) by exact (lfold_is {zero} {op} _ _ (_Ho {key})). "
            f"rewrite ?_Q_{identifier(s.name)} in *. clear _Q_{identifier(s.name)}."
        )

    def _facts(self, o: Output) -> list[str]:
        from redalg.proofs.rocq_lemmas import defined

        self.words.readers = {}
        return [f"({self.words.fact(c)})" for c in defined(self.doc.terms, self.doc.spec[o.name])]

    def text(self) -> str:
        """Everything, in a section over the spec's tensors."""
        body = [self.parts(), self.laws()]
        body += [self.theorem(o) for o in self.doc.outputs if o.name in self.proved]
        js = self.words.list_of(self.axis)
        variables = [f"Variable {n} : {k}." for n, k in self.words.variables.items() if n != js]
        facts = [f"Hypothesis domain_{k} : {fact}." for k, fact in enumerate(self.words.domains)]
        return "\n".join(["Section Form.", *variables, *facts, *body, "End Form."])
