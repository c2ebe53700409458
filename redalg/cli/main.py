"""The command line: ``python -m redalg derive|explain|source|run|verify|catalog|demo``.

Exit status: 0 done (derived, agreed), 1 refused with a witness, 2 undecided, 3 the request cannot be carried out (a
four-part error on stderr), 4 a result differs from the definition, 130 interrupted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from redalg import _hooks
from redalg.cli.certificate import verify_file, write_certificate
from redalg.cli.demo import demo
from redalg.cli.run import run_on_file
from redalg.display import show
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.text.colour import titles, wanted
from redalg.text.terminal import progress, table

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec

DONE, REFUSED, UNDECIDED, UNUSABLE, DIFFERS, INTERRUPTED = 0, 1, 2, 3, 4, 130


class Parser(argparse.ArgumentParser):
    """argparse that reports like everything else here, and keeps exit status 2 for "undecided"."""

    def error(self, message: str) -> NoReturn:
        raise RedalgError(
            what=message,
            where=self.prog,
            why="the arguments do not fit the command",
            fix=f"{self.format_usage().strip()}; `{self.prog} --help` describes them",
        )


def parser() -> Parser:
    top = Parser(prog="python -m redalg", description="Derive one-pass, mergeable forms of textbook definitions.")
    top.add_argument("--version", action="version", version=f"redalg {_version()}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, summary: str, run: Any) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary, epilog=__doc__ and __doc__.split("\n\n")[1])
        sub.set_defaults(run=run)
        return sub

    for name, summary, run in (
        ("derive", "derive the incremental form of a spec, or show why there is none", derive_command),
        ("explain", "derive and explain what the form keeps, how it moves, and why", explain_command),
        ("source", "derive and print the generated code", source_command),
        ("run", "run a form on the arrays of a .npz file and compare it with the definition", run_command),
    ):
        _derivation_arguments(command(name, summary, run))
    commands.choices["source"].add_argument("--target", default="numpy", help="numpy (default), cpu or cuda")
    _run_arguments(commands.choices["run"])

    verify = command("verify", "check a certificate file", verify_command)
    verify.add_argument("file", metavar="FILE")
    verify.add_argument("--allow", action="append", default=[], choices=("tested", "unknown"), help="accept these too")
    verify.add_argument("--thorough", action="store_true", help="look for counterexamples to what is proved, too")
    verify.add_argument("--smt", metavar="DIR", help="also write every obligation as an SMT-LIB 2 text")
    verify.add_argument("--rocq", metavar="OUT.v", help="also print the certificate as lemmas for coqc")
    commands.choices["derive"].add_argument("--certificate", metavar="FILE", help="write the form's certificate (JSON)")
    listing = command("catalog", "list the catalog, or show one of its specs", catalog_command)
    listing.add_argument("name", nargs="?", metavar="NAME")
    command("demo", "attention and LayerNorm on real data in unequal pieces", demo_command)
    return top


def _derivation_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("spec", metavar="SPEC", help="a name from the catalog, or the text of a spec")
    sub.add_argument("--axis", help="the axis to stream; several names, separated by commas, are one composite axis")
    sub.add_argument("--max-passes", type=int, default=1, metavar="N", help="allow up to N statistics passes")
    sub.add_argument("--assume", action="append", default=[], metavar="FACT", help="for example cast_commutes")


def _run_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("data", metavar="DATA.npz", help="arrays by tensor name")
    sub.add_argument(
        "--set", action="append", default=[], metavar="TENSOR=VALUE", help="a number, or a key of the file"
    )
    sub.add_argument("--target", default=None, help="numpy, cpu or cuda; default: the best that is there")
    sub.add_argument("--out", metavar="FILE.npz", help="save the outputs")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("redalg")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"


# --- from arguments to a form ----------------------------------------------------------------------------------------


def _spec(text: str) -> tuple[Spec, Any]:
    """The spec that a name or a text stands for, and its own axis if it comes from the catalog."""
    import redalg as ra

    if re.fullmatch(r"\s*\w+\s*", text):
        entry = ra.catalog.entry(text.strip())
        return entry.spec, entry.axis
    return ra.parse(text), None


def _form(args: argparse.Namespace) -> Form:
    import redalg as ra

    spec, axis = _spec(args.spec)
    if args.axis:
        names = tuple(a.strip() for a in args.axis.split(","))
        axis = names[0] if len(names) == 1 else names
    with progress("deriving"):
        return ra.derive_incremental(spec, axis=axis, max_passes=args.max_passes, assume=frozenset(args.assume))


# --- the commands ----------------------------------------------------------------------------------------------------


def derive_command(args: argparse.Namespace) -> int:
    form = _form(args)
    show(form)
    if args.certificate:
        write_certificate(form, args.certificate)
    return DONE


def explain_command(args: argparse.Namespace) -> int:
    text = _form(args).explain()
    print(titles(text) if wanted(sys.stdout) else text)
    return DONE


def source_command(args: argparse.Namespace) -> int:
    form = _form(args)
    try:
        source = form.compile(args.target).source
    except RedalgError:
        if args.target != "cuda":
            raise
        source = _kernel_without_gpu(form)
    print(source)
    return DONE


def _kernel_without_gpu(form: Form) -> str:
    """What would be printed for float32 arrays of moderate size, on a machine with one."""
    made, sizes = _hooks.kernel(form)
    lengths = ", ".join(f"{axis}={n}" for axis, n in sizes.items())
    print(f"no GPU can be used here: the kernel for an {made.device}, float32, {lengths}", file=sys.stderr)
    return made.source


def run_command(args: argparse.Namespace) -> int:
    return DONE if run_on_file(_form(args), args.data, args.set, args.target, args.out) else DIFFERS


def verify_command(args: argparse.Namespace) -> int:
    return DONE if verify_file(args.file, args.allow, args.smt, args.rocq, args.thorough) else REFUSED


def catalog_command(args: argparse.Namespace) -> int:
    import redalg as ra

    if args.name is None:
        for title, entries in ra.catalog.sections().items():
            print(f"{title}\n" + table([["", e.name, e.description] for e in entries]) + "\n")
        return DONE
    entry = ra.catalog.entry(args.name)
    rows: list[list[object]] = [["description", entry.description], ["source", entry.source], ["axis", entry.axis]]
    rows += [["assumes", ", ".join(sorted(entry.assume))]] if entry.assume else []
    print(f"{table(rows)}\n\n{entry.spec}")
    return DONE


def demo_command(args: argparse.Namespace) -> int:
    demo()
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; results go to stdout, everything else to stderr."""
    try:
        args = parser().parse_args(arguments)
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except (NotDecomposable, Undecided) as verdict:
        show(verdict)
        return UNDECIDED if isinstance(verdict, Undecided) else REFUSED
    except RedalgError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        sys.stderr.close()
        return DONE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
