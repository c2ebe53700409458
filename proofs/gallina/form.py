"""The form of a certificate as a fold in Gallina, and the theorem that it is the spec's definition.

`proofs/theories/Form.v` proves once, for every tree over the stream, that a form's state holds what its parts mean.
Here are printed the parts (orders, anchors, slots, moves), the laws they need, and per output the theorem: whatever the
policies, the bracketing and (where no part sees it) the order, finalize of the state is the definition of the stream.
Of a policy that chooses a scale it is required that all it chooses is positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from redalg.proofs.checker.denotation import COUNT
from redalg.proofs.document.document import Anchor, Document, Output, Pass, Slot
from redalg.proofs.document.terms import Term, leaves, walk
from redalg.proofs.gallina.lemmas import defined
from redalg.proofs.gallina.words import Unprintable, Words, applied, identifier

ORDERS = {  # kind: type, operation
    "max": ("R", "Rmax"),
    "min": ("R", "Rmin"),
    "prod": ("R", "Rmult"),
    "any": ("bool", "orb"),
    "all": ("bool", "andb"),
    "argmax": ("place", "pick_place"),
    "argmin": ("place", "pick_place"),
    "topk": ("list entry", "topk_combine {k}"),
}
IN_ORDER = frozenset({"argmax", "argmin"})  # what depends on the order of the stream
Reader = Callable[[list[str]], str]
REORDERED = """Lemma of_any_order : forall _o _js _ks, Permutation _js _ks -> meant_by _o _js = meant_by _o _ks.
Proof. intros []; cbn [meant_by]; redalg_order. Qed.
"""
OWN = (  # what the printed section calls its own
    "order val op orders_of free slot avg phi rows valid moves opened laws always_valid of_one of_both of_any_order "
    "meant_by largest place chosen T anchor state Count count at_ slots fst snd run stream leaves Permutation Form "
    "Some None".split()
)


class FormWords(Words):
    """Words in which the parts of the state are read from where the text stands."""

    def __init__(self, doc: Document, roots: Iterable[Term]) -> None:
        super().__init__(doc.axis, roots, doc.assumptions)
        self.bound |= {*doc.axis, *(s.extra[1] for p in doc.passes for s in p.slots if s.extra)}
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
        self.words = FormWords(doc, self._roots())
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
        declared = {a.name: a.axes for a in self.form.anchors}
        declared |= {part: s.leaf(k).axes for s in self.form.slots for k, part in enumerate(s.parts)}
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

    @property
    def chosen(self) -> list[Anchor]:
        """Scales that a policy chooses: it must choose valid ones."""
        return [a for a in self.form.anchors if a.kind == "mul" and a.target is None]

    @property
    def in_order(self) -> bool:
        return any(s.kind in IN_ORDER for s in self.form.slots)

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
        def reader(name: str) -> Reader:
            return lambda args: applied(identifier(name), [anchor, *args])

        return {a.name: reader(a.name) for a in self.form.anchors}

    def orders_at(self, orders: str) -> dict[str, Reader]:
        found: dict[str, Reader] = {}
        for s in self.orders:
            for part, name in enumerate(s.parts):
                found[name] = self._order_reader(s, part, orders)
        return found

    def _order_reader(self, s: Slot, part: int, orders: str) -> Reader:
        def read(args: list[str]) -> str:
            if s.kind == "topk":
                top = args.pop()
                whole = f"({orders} {applied(self.constructor(s.name), args)})"
                return f"(top_{('value', 'index')[part]} {top} {whole})"
            whole = f"({orders} {applied(self.constructor(s.name), args)})"
            if s.kind in IN_ORDER:
                return (
                    f"(INR (fst (snd {whole})))"
                    if part
                    else ("(- fst {})", "(fst {})")[s.kind == "argmax"].format(whole)
                )
            return whole

        return read

    def state_at(self) -> dict[str, Reader]:
        def reader(s: Slot) -> Reader:
            return lambda args: f"(slots _s {applied(self.constructor(s.name), args)})"

        found: dict[str, Reader] = {s.parts[0]: reader(s) for s in self.sums}
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
        scales = {a.name for a in self.form.anchors if a.policy == "scale"}
        return found | {name: r for name, r in self.anchors_at("_B").items() if name in scales}  # what it moves to

    # --- the parts ---

    def parts(self) -> str:
        orders, free = self.orders, [a for a in self.form.anchors if a.target is None]
        lines = [self._inductive("order", orders)]
        kinds = {s.name: ORDERS[s.kind] for s in orders}
        case = [(self.pattern(s), kinds[s.name][0]) for s in orders]
        lines.append(f"Definition val (_o : order) : Type := {self._match('_o', 'Type', case)}.")
        case = [(self.pattern(s), kinds[s.name][1].format(k=s.extra[0] if s.extra else 0)) for s in orders]
        ops = self._match("_o", "val _o -> val _o -> val _o", case)
        lines.append(f"Definition op (_o : order) : val _o -> val _o -> val _o := {ops}.")
        element = self.words.name(("axis", self.axis), self.axis, None)
        value = self._match("_o", "val _o", [(self.pattern(s), self._lifted(s)) for s in orders])
        lines.append(f"Definition orders_of ({element} : nat) (_o : order) : val _o := {value}.")
        js = self.words.list_of(self.axis)
        value = self._match("_o", "val _o", [(self.pattern(s), self._meant(s, js)) for s in orders])
        lines.append(f"Definition meant_by (_o : order) ({js} : list nat) : val _o := {value}.")
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

    def _lifted(self, s: Slot) -> str:
        body = self._with({}, [self.axis, *self.places(s)], s.lift[0])
        if s.kind in IN_ORDER:
            return f"({body if s.kind == 'argmax' else f'(- {body})'}, (0%nat, 1%nat))"
        element = self.words.names["axis", self.axis]
        return f"topk {s.extra[0]} (fun {element} : nat => ({body}, {element})) [{element}]" if s.extra else body

    def _meant(self, s: Slot, js: str) -> str:
        body = self._with({}, [self.axis, *self.places(s)], s.lift[0])
        element = self.words.names["axis", self.axis]
        if s.kind in IN_ORDER:
            return f"largest (fun {element} : nat => {body if s.kind == 'argmax' else f'(- {body})'}) {js}"
        if s.extra:
            return f"ltopk {s.extra[0]} (fun {element} : nat => {body}) {js}"
        return f"l{s.kind} (fun {element} : nat => {body}) {js}"

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
        valid = " /\\ ".join(_valid(a, f"{identifier(a.name)} _A") for a in scales) or "True"
        chosen = " /\\ ".join(_valid(a, f"_m {self.constructor(a.name)}") for a in self.chosen) or "True"
        names = " ".join(identifier(a.name) for a in self.form.anchors)
        unfolded = f"unfold valid{', ' + ', '.join(names.split()) if names else ''} in *"
        return f"""Definition valid (_A : anchor val (free -> R)) : Prop := {valid}.
Definition moves (_A _B : anchor val (free -> R)) : Prop := valid _A /\\ valid _B.
Ltac opened := unfold T; cbv beta iota delta [rows phi fst snd]; rewrite ?lsum_cons, ?lsum_nil.
Definition chosen (_m : free -> R) : Prop := {chosen}.
Lemma always_valid : forall _o _m, chosen _m -> valid (_o, _m).
Proof.
  intros _o _m _C. unfold chosen in _C. {unfolded}. cbn [fst snd]. repeat split; first [tauto | redalg_finish].
Qed.
Lemma laws : moving (@fplus slot) phi (T rows) (fun _ _A => valid _A) moves.
Proof.
  apply linear_moving; unfold moves.
  - tauto.
  - unfold valid. intros _j _A _B _i _ _M. destruct _i; repeat progress opened; redalg_finish.
  - tauto.
  - unfold valid. intros _A _B _C _u _i _M _N. destruct _i; repeat progress opened; redalg_finish.
  - unfold valid. intros _A _u _i _M. destruct _i; repeat progress opened; redalg_finish.
Qed.
Lemma of_one : forall _o _j, meant_by _o [_j] = orders_of _j _o.
Proof. intros []; cbn [meant_by orders_of]; redalg_one. Qed.
Lemma of_both : forall _o _js _ks, _js <> [] -> _ks <> [] ->
  meant_by _o (_js ++ _ks) = op _o (meant_by _o _js) (meant_by _o _ks).
Proof. intros []; cbn [meant_by op]; redalg_app. Qed.
{"" if self.in_order else REORDERED}"""

    # --- the theorems ---

    def own_axes(self, o: Output) -> list[str]:
        """The axes of an output that are arguments of what it is."""
        own = [a for a in o.axes if a in self.words.bound and a != self.axis]
        return [*own, self.axis] if o.keeps_axis else own

    def theorem(self, o: Output) -> str:
        name = identifier(o.name)
        own = self.own_axes(o)
        places = "".join(f" ({a} : nat)" for a in own)
        kind = "bool" if self.doc.spec[o.name].is_boolean else "R"
        value = self._with(self.state_at(), own, o.value)
        definition = self._with({}, own, self.doc.spec[o.name])
        js = self.words.list_of(self.axis)
        facts = self._facts(o)
        run = "(Form.lift orders_of phi _first) (Form.combine op avg rows _meet)"
        finalize = applied(f"finalize_{name}", own)
        stated = f"{''.join(f'{f} -> ' for f in facts)}option_map {finalize}"
        names = [identifier(a.name) for a in self.form.anchors]
        unfolded = f"unfold {', '.join(names)} in *. " if names else ""
        self.theorems += [f"form_is_{name}", f"stream_is_{name}"]
        stream, given = f"Permutation (leaves _t) {js} -> {js} <> []", "form_permutation"
        if self.in_order:
            stream, given = f"leaves _t = {js} -> {js} <> []", "form_state"
        swapped = "" if self.in_order else "of_any_order "
        policies = "(forall _j, chosen (_first _j)) -> (forall _a _b, chosen (_meet _a _b)) -> " if self.chosen else ""
        intros = [js, *own, *["_F", "_G"] * bool(self.chosen), "_P", "_N", *(f"_D{k}" for k in range(len(facts)))]
        right = [f"(always_valid _ _ {'(' + x + ')' if self.chosen else 'I'})" for x in ("_F _", "_G _ _")]
        return f"""Definition finalize_{name}{places} (_s : state val (free -> R) slot) : {kind} := {value}.
Theorem form_is_{name} : forall _first _meet _t {js}{places}, {policies}{stream} -> {stated}
    (run {run} _t) = Some {definition}.
Proof.
  intros _first _meet _t {" ".join(intros)}.
  {"subst " + js + "." if self.in_order else ""}
  destruct ({given} op orders_of avg valid _first _meet meant_by of_one of_both laws
    (fun _ => conj {right[0]} {right[0]})
    (fun _a _b _U _V => conj (conj _U {right[1]}) (conj (conj _V {right[1]}) {right[1]}))
    {swapped}_t {"" if self.in_order else "_P "}_N) as (_o & _m & _u & _E & _Ho & _Hu & _V).
  apply (Forall_of_some _N) in _V. unfold valid in _V.
  unfold run in *. rewrite _E. clear _E. cbn [option_map]. f_equal.
  unfold finalize_{name}, at_, slots, count. cbn [fst snd].
  rewrite ?_Hu. clear _Hu. unfold meant. cbv beta iota delta [avg phi]. {unfolded}cbn [fst snd] in _V. cbn [fst snd].
  rewrite ?_Ho in _V. rewrite ?_Ho. clear _Ho. cbn [meant_by] in _V. cbn [meant_by]. unfold largest. cbn [fst snd].
  unfold Rdiv. apply {self.proved[o.name]}; first [tauto | auto].
Qed.
Theorem stream_is_{name} : forall _first _meet {js}{places}, {policies}{js} <> [] -> {stated}
    (stream {run} {js}) = Some {definition}.
Proof. intros. rewrite stream_is_a_tree. apply form_is_{name}; auto; now rewrite leaves_comb. Qed.
"""

    def _facts(self, o: Output) -> list[str]:
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


def _valid(a: Anchor, value: str) -> str:
    """What a scale is, whichever it is."""
    return f"0 < {value}" if a.policy == "scale" else f"{value} <> 0"
