"""The catalogue of findings: complete, true to the code that tells them, and readable from the command line."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

import eagle3_adapters
from eagle3_adapters import findings
from eagle3_adapters.cli import main
from eagle3_adapters.cli.output import WIDTH
from eagle3_adapters.findings import EXPLANATIONS, Explanation
from eagle3_adapters.findings.__main__ import markdown

PACKAGE = Path(eagle3_adapters.__file__).parent

#: The codes of the list that every front end shares.
LISTED = frozenset(
    """
    config-unreadable checkpoint-unreadable shard-missing shard-escape pickle-refused draft-is-target not-eagle3
    format-unknown format-ambiguous layer-ids-reading draft-architecture draft-depth target-unsupported
    adapter-mismatch layer-ids-missing layer-ids-misplaced layer-ids-out-of-range layer-ids-duplicate
    layer-ids-degenerate layer-ids-unordered boundary-unreachable aux-count aux-disabled fc-bypass weight-unmapped
    weight-missing weight-shape weight-collision norm-tensor-without-flag norm-flag-without-tensor
    norm-before-residual norm-output-meaning double-norm qk-norm projection-bias mlp-bias layer-norm-name
    trained-embedding vocab-map-missing vocab-map-length vocab-map-range vocab-map-duplicate vocab-map-unfilled
    vocab-map-mask vocab-map-absolute tied-head hidden-size vocab-size rope-base rope-scaling rope-spelling
    context-short quantization-inherited quantization-null algorithm draft-tokens attention-backend parallelism
    plugin-excluded hook-not-applied override-both engine-version capture-mismatch capture-identity acceptance-floor
    output-loop
    """.split()  # noqa: SIM905 - a list of 70 lines is no easier to read
)

# What the package emits, read from its sources.

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
#: Method of a report or member of Severity -> how the catalogue may name what it tells.
LETTERS = {"error": {"E"}, "warning": {"W"}, "info": {"I", "fixed", "served"}}
#: What can only tell errors: these raise.
STOPS = ("refused", "_fail", "_finding", "VocabMapError")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> Mapping[Path, ast.Module]:
    """Every module of the package but the catalogue itself and the kernels."""
    return {
        file: ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(PACKAGE.rglob("*.py"))
        if not {"findings", "kernels"} & set(file.relative_to(PACKAGE).parts)
    }


def functions(tree: ast.AST) -> Iterator[tuple[str, Function]]:
    """Every function of a module; a constructor under the name of its class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, f) for f in node.body if isinstance(f, Function) and f.name == "__init__")
        if isinstance(node, Function) and node.name != "__init__":
            yield node.name, node


def tellers(modules: Iterable[ast.Module]) -> Mapping[str, int]:
    """Whatever takes a ``code``: name -> position of that argument for a caller. Finding takes it by keyword."""
    found = {"Finding": 0}
    for tree in modules:
        for name, function in functions(tree):
            names = [argument.arg for argument in function.args.args if argument.arg != "self"]
            if "code" in names and name not in ("explain", "normal", "close_to"):
                found[name] = names.index("code")
    return found


@attrs.frozen
class Emitted:
    """One place that tells a code; ``severity`` is a key of LETTERS, or empty where the place does not say."""

    code: str
    severity: str
    place: str


@attrs.define
class Reader:
    """Reads one module."""

    tree: ast.Module
    known: Mapping[str, int]
    place: str
    unread: list[str] = attrs.field(factory=list)

    def emitted(self) -> Iterator[Emitted]:
        inside = [(function, node) for _, function in functions(self.tree) for node in ast.walk(function)]
        for function, node in inside:
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            severities = {name} & set(LETTERS) or self.aliases(function).get(name) or self.stated(node)
            severities = {"error"} if name in STOPS else severities
            if (name not in self.known and name not in self.aliases(function)) or self.is_log(node):
                continue
            code = self.code(node, name)
            if code is None:
                continue
            place = f"{self.place}:{node.lineno}"
            codes = list(self.codes(code, function))
            if not codes and not self.passed_on(code, function):
                self.unread.append(place)
            for one in codes:
                # With several of each, which belongs to which is decided at run time.
                yield Emitted(one, next(iter(severities)) if len(severities) == 1 else "", place)

    @staticmethod
    def is_log(node: ast.Call) -> bool:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return isinstance(owner, ast.Name) and owner.id in ("log", "logger")

    @staticmethod
    def stated(node: ast.Call) -> set[str]:
        """The severity of ``Finding(severity=Severity.X)``."""
        members = (word.value for word in node.keywords if word.arg == "severity")
        return {member.attr.lower() for member in members if isinstance(member, ast.Attribute)}

    @staticmethod
    def aliases(function: Function) -> Mapping[str, set[str]]:
        """``tell = report.warning if ... else report.error``."""
        return {
            node.targets[0].id: {one.attr for one in ast.walk(node.value) if isinstance(one, ast.Attribute)}
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.IfExp | ast.Attribute)
            and {one.attr for one in ast.walk(node.value) if isinstance(one, ast.Attribute)} & set(LETTERS)
        }

    def code(self, node: ast.Call, name: str) -> ast.expr | None:
        named = [word.value for word in node.keywords if word.arg == "code"]
        position = self.known.get(name, 0)
        return named[0] if named else node.args[position] if len(node.args) > position else None

    def codes(self, code: ast.expr, function: Function) -> Iterator[str]:
        match code:
            case ast.Constant(value=str(text)):
                yield from [text] if SLUG.fullmatch(text) else []
            case ast.IfExp(body=left, orelse=right):
                yield from (*self.codes(left, function), *self.codes(right, function))
            case ast.JoinedStr(values=parts):
                # f"{kind}-unknown": every catalogued code of that shape; its own test runs it.
                shape = "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"[a-z]+" for p in parts)
                yield from (known for known in EXPLANATIONS if re.fullmatch(shape, known))
            case ast.Name() if not self.passed_on(code, function):
                # In the function, or in a table of the module that it reads.
                used = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)}
                tables = [
                    node.value
                    for node in self.tree.body
                    if isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.Dict)
                    and {one.id for one in node.targets if isinstance(one, ast.Name)} & used
                ]
                places = (one for place in (function, *tables) for one in ast.walk(place))
                texts = (one.value for one in places if isinstance(one, ast.Constant))
                yield from (text for text in texts if isinstance(text, str) and "-" in text and SLUG.fullmatch(text))

    @staticmethod
    def passed_on(code: ast.expr, function: Function) -> bool:
        """A parameter, whose callers are read, or the field of an exception that was raised with one."""
        parameters = {argument.arg for argument in function.args.args}
        return (isinstance(code, ast.Name) and code.id in parameters) or isinstance(code, ast.Attribute)


def read_sources() -> tuple[tuple[Emitted, ...], tuple[str, ...]]:
    modules = sources()
    known = tellers(modules.values())
    readers = [Reader(tree, known, str(file.relative_to(PACKAGE))) for file, tree in modules.items()]
    emitted = tuple(one for reader in readers for one in reader.emitted())
    return emitted, tuple(place for reader in readers for place in reader.unread)


EMITTED, UNREAD = read_sources()
CODES = frozenset(one.code for one in EMITTED)


def test_the_collection_itself_works() -> None:
    known = tellers(sources().values())
    assert {"error", "warning", "info", "refused", "fault", "_fail", "VocabMapError", "Finding"} <= set(known)
    assert UNREAD == ()
    # By each way in which a code reaches a finding.
    ways = {
        "aux-count": "report.error",
        "engine-version": "Finding(code=)",
        "capture-mismatch": "refused",
        "registry-conflict": "_finding",
        "shard-escape": "_fail",
        "vocab-map-unfilled": "VocabMapError",
        "layer-ids-degenerate": "either of two",
        "format-ambiguous": "either of two, by an alias",
        "adapter-unknown": "an f-string",
        "mlp-bias": "a table of the module",
    }
    assert set(ways) - CODES == set()


def test_every_code_that_the_package_emits_is_explained() -> None:
    assert CODES - set(EXPLANATIONS) == set()


def test_every_code_of_the_shared_list_is_explained() -> None:
    assert LISTED - set(EXPLANATIONS) == set()


def test_nothing_is_explained_that_is_neither_listed_nor_emitted() -> None:
    assert set(EXPLANATIONS) - LISTED - CODES == set()


def test_the_catalogue_names_every_severity_that_is_emitted() -> None:
    contradictions = [
        (one.code, one.severity, EXPLANATIONS[one.code].severity, one.place)
        for one in EMITTED
        if one.severity and one.code in EXPLANATIONS and not LETTERS[one.severity] & EXPLANATIONS[one.code].severities
    ]
    assert contradictions == []


# What each entry says.

ENTRIES = [pytest.param(entry, id=entry.code) for entry in EXPLANATIONS.values()]
#: What a user reads as a verdict.
TEXTS = ("title", "meaning", "fix")


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_is_complete(entry: Explanation) -> None:
    assert 0 < len(entry.title) <= 80
    assert "\n" not in entry.title
    assert not entry.title.endswith(".")
    assert 1 <= len(re.findall(r"[.:](?=\s|$)", entry.meaning)) <= 4
    assert entry.meaning.endswith(".")
    assert entry.fix.strip()
    assert entry.example.strip()
    assert all(writer.strip() for writer in entry.writers)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_fix_has_something_to_paste_unless_nothing_is_to_be_done(entry: Explanation) -> None:
    assert entry.fix.startswith("Nothing to do") or re.search(r"^ {4}\S", entry.fix, re.MULTILINE)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_number_of_acceptance_says_where_it_is_from(entry: Explanation) -> None:
    if entry.cost:
        assert re.search(r"\b(measured here|reported by)\b", entry.cost, re.IGNORECASE)
    else:
        assert not re.search(r"accept length (of |about )?\d", entry.meaning + entry.fix)


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_text_contradicts_the_severity(entry: Explanation) -> None:
    text = " ".join(getattr(entry, name) for name in TEXTS)
    harmless = entry.severities <= {"fixed", "served", "I"}
    assert entry.fix.startswith("Nothing to do") == (harmless and bool(entry.severities & {"fixed", "served"}))
    if "E" not in entry.severities:
        assert not re.search(r"\b(is refused|are refused|the start is refused|server ends|stops the start)\b", text)
    if entry.severities == {"E"}:
        assert not re.search(r"\b(goes on|nothing is needed|was corrected|are corrected|is only told)\b", text)
    if {"E", "fixed"} <= entry.severities:
        # One code, two fates: the text must tell the one from the other.
        assert "nothing is needed" in entry.fix


@pytest.mark.parametrize("name", [*TEXTS, "cost", "example"])
def test_no_text_stands_in_two_entries_by_mistake(name: str) -> None:
    allowed = {findings.math._SERVED, findings.math._NOT_LATENT, findings.vocabulary._EXPORT, ""}
    texts = [text for text in (getattr(entry, name) for entry in EXPLANATIONS.values()) if text not in allowed]
    assert len(texts) == len(set(texts))


def test_commands_that_are_named_exist() -> None:
    texts = "\n".join(f"{entry.meaning}\n{entry.fix}" for entry in EXPLANATIONS.values())
    named = set(re.findall(r"^ +eagle3-adapters ([a-z]+)", texts, re.MULTILINE))
    assert named <= set(main.commands)
    assert "check" in named


# The command.


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["explain", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def data(result: Result) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


@pytest.mark.parametrize("entry", ENTRIES)
def test_explain_prints_all_of_an_entry_in_100_columns(entry: Explanation) -> None:
    result = run(entry.code)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    shown = " ".join(result.stdout.split())
    for text in (entry.code, entry.severity, entry.title, entry.meaning, *entry.writers, entry.cost, entry.example):
        assert " ".join(text.split()) in shown
    assert " ".join(entry.fix.split()) in shown
    pasted = {"    " + line for line in entry.fix.splitlines() if line.startswith("    ")}
    pasted |= {"    " * 2 + line for line in entry.example.splitlines()}
    lines = result.stdout.splitlines()
    # What is to be pasted is one line, however long.
    assert pasted <= {line.rstrip("\n") for line in lines}
    assert [line for line in lines if len(line) > WIDTH and line not in pasted] == []


def test_explain_leaves_out_what_is_not_known() -> None:
    entry = EXPLANATIONS["parallelism"]
    assert (entry.cost, entry.writers) == ("", ())
    lines = run("parallelism").stdout.splitlines()
    assert "cost" not in lines
    assert "written by" not in lines


def test_json_of_one_code_holds_its_fields() -> None:
    loaded = data(run("vocab-map-missing", "--json"))
    assert (loaded["schema"], loaded["command"]) == (1, "explain")
    entry = EXPLANATIONS["vocab-map-missing"]
    assert loaded["explanation"] == attrs.asdict(entry) | {"writers": list(entry.writers)}


def test_all_has_one_line_for_each_code_in_a_pipe() -> None:
    lines = run("--all").stdout.splitlines()
    rows = [line for line in lines if line.split(" ")[0] in EXPLANATIONS]
    assert [row.split(" ")[0] for row in rows] == list(EXPLANATIONS)
    assert len(lines) == len(rows) + 2
    for row, entry in zip(rows, EXPLANATIONS.values(), strict=True):
        assert re.split(r"  +", row.rstrip()) == [entry.code, entry.severity, entry.title]
        assert len(row.rstrip()) <= WIDTH


def test_json_of_all_holds_every_entry_in_order() -> None:
    loaded = data(run("--all", "--json"))
    assert [entry["code"] for entry in loaded["explanations"]] == list(EXPLANATIONS)


@pytest.mark.parametrize("typed", ["ERROR vocab-map-missing:", "vocab_map_missing", "VOCAB-MAP-MISSING"])
def test_a_code_may_be_pasted_as_it_was_printed(typed: str) -> None:
    assert run(typed).stdout == run("vocab-map-missing").stdout


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("vocab-map-mising", "vocab-map-missing"),
        ("vocab-map", "vocab-map-range"),
        ("layer-id-missing", "layer-ids-missing"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_unknown_code_is_wrong_usage_and_names_close_ones(typed: str, near: str, more: tuple[str, ...]) -> None:
    result = run(typed, *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert near in result.stderr


@pytest.mark.parametrize("typed", ["xyzzy", "", ":"])
def test_an_unknown_code_without_close_ones_names_the_way_to_the_list(typed: str) -> None:
    result = run(typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--all" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--json",), ("aux-count", "--all")])
def test_explain_wants_one_code_or_all(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


# The file, and what importing costs.


def test_the_committed_table_is_the_generated_one() -> None:
    made = "python -m eagle3_adapters.findings > eagle3_adapters/findings/FINDINGS.md"
    assert (PACKAGE / "findings" / "FINDINGS.md").read_text(encoding="utf-8") == markdown(), made


def test_the_table_is_written_by_the_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eagle3_adapters.findings"], capture_output=True, check=True, text=True, timeout=60
    )
    assert done.stdout == markdown()
    assert done.stderr == ""


def loaded_by(statement: str) -> set[str]:
    source = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True, text=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["eagle3_adapters.pair", "eagle3_adapters.cli", "eagle3_adapters.sglang.plugin"])
def test_planning_does_not_pay_for_the_catalogue(module: str) -> None:
    assert [name for name in loaded_by(f"import {module}") if name.startswith("eagle3_adapters.findings")] == []


def test_the_catalogue_needs_neither_torch_nor_sglang() -> None:
    assert loaded_by("import eagle3_adapters.findings") & {"torch", "sglang", "numpy", "transformers"} == set()


def test_every_emitted_code_is_raised_by_some_test() -> None:
    """The tables of test_plan, test_server_options, test_checkpoint and the others; this only finds a gap."""
    tests = Path(__file__).parents[1]
    text = "".join(file.read_text(encoding="utf-8") for file in tests.rglob("test_*.py") if file != Path(__file__))
    # Told where SGLang's class does not honour a flag; both classes honour these.
    honoured = {"fc-norm", "norm-output"}
    assert [code for code in sorted({one.code for one in EMITTED} - honoured) if code not in text] == []
