"""Specs parse and print back; nothing but InputError ever comes out of a bad one."""

import math
import string
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import simgrad
from simgrad.core.errors import InputError
from simgrad.core.spec import Declaration
from simgrad.objectives import Goal, NTXent, Objective, declare, objective, objectives

from .cases import everything, names

DECLARED = list(objectives)
each_declaration = pytest.mark.parametrize("entry", DECLARED, ids=[d.name for d in DECLARED])


@each_declaration
def test_a_declaration_says_what_documents_need(entry: Declaration[Objective]) -> None:
    assert entry.paper
    assert entry.description
    assert all(p.description for p in entry.parameters)
    made = objective(entry.name)
    assert isinstance(made, Objective)
    assert str(objective(str(made))) == str(made)


def _values(entry: Declaration[Objective]) -> st.SearchStrategy[dict[str, str]]:
    """Any values of any of its parameters, as a user would type them."""
    fields = {}
    for p in entry.parameters:
        if p.choices:
            fields[p.name] = st.sampled_from(p.choices)
        elif isinstance(p.default, bool):
            fields[p.name] = st.sampled_from(["true", "false", "True"])
        else:
            most = 0.999 if p.name == "prior" else 1000  # a probability
            least = 0.01 if p.name == "tau" else 0.001  # a learned temperature is 0.01 at least
            fields[p.name] = st.floats(least, most).map(lambda x: f"{x:.6g}")
    return st.fixed_dictionaries({}, optional=fields)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_spec_prints_one_that_means_the_same(data: st.DataObject) -> None:
    entry = data.draw(st.sampled_from(DECLARED))
    values = data.draw(_values(entry))
    text = f"{entry.name}({', '.join(f'{k}={v}' for k, v in values.items())})"
    first = objective(text)
    second = objective(str(first))
    assert str(second) == str(first)
    assert type(second) is type(first)
    for p in entry.parameters:
        name = "lambda_" if p.name == "lambda" else p.name
        one, other = getattr(first, name), getattr(second, name)
        if isinstance(one, float):
            assert math.isclose(one, other, rel_tol=1e-11)
        else:
            assert one == other


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        st.text(alphabet="goal(),= -._0123456789naif\n" + string.ascii_lowercase, max_size=60),
        st.builds(
            "{}({}={})".format,
            st.sampled_from([d.name for d in DECLARED]),
            st.sampled_from(["tau", "margin", "pair", "learned", "x", ""]),
            st.text(max_size=20),
        ),
    )
)
def test_reading_a_spec_raises_nothing_but_input_errors(text: str) -> None:
    try:
        made = objective(text)
    except InputError as error:
        assert len(str(error)) < 2000  # noqa: PT017
    else:
        assert str(objective(str(made))) == str(made)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("tripplet", "Did you mean 'triplet'"),
        ("nt-xent(taw=1)", "Did you mean 'tau'"),
        ("nt-xent(tau=hot)", "takes a number"),
        ("nt-xent(tau=nan)", "takes a number"),
        ("nt-xent(tau=0)", "greater than 0"),
        ("nt-xent(tau=1, tau=2)", "twice"),
        ("nt-xent(tau)", "not 'key=value'"),
        ("nt-xent(learned=maybe)", "true or false"),
        ("goal(pair=wrong)", "one of con, lin"),
        ("circle(pair=con)", "no parameter 'pair'"),
        ("smooth-ap(tau=-1)", "greater than 0"),
        ("siglip(scale=-1)", "greater than 0"),
        ("adap-off-quin(alpha=0)", "greater than 0"),
        ("goal(tau=-1)", "'tau' must be greater than 0, not -1"),
        ("goal(triplet=nca, pair=con, tau=0)", "'tau' must be greater than 0"),
        ("nca(tau=0)", "'tau' must be greater than 0"),
        ("goal(margin=-0.1)", "'margin' must be at least 0"),
        ("goal(epsilon=-5)", "'epsilon' must be at least 0"),
        ("goal(alpha=-2)", "'alpha' must be at least 0"),
        ("triplet(margin=-1)", "'margin' must be at least 0"),
        ("triplet-sh(margin=-1)", "'margin' must be at least 0"),
        ("off-tri(offline=-1)", "'offline' must be at least 0"),
        ("debiased-nt-xent(prior=1)", "at least 0 and less than 1"),
        ("", "cannot read"),
        ("a" * 5000, "is written"),
    ],
)
def test_errors_of_specs(spec: str, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        objective(spec)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Goal(tau=-1.0),
        lambda: Goal(lambda_=0.4, epsilon=-5.0),
        lambda: Goal(tau=math.nan),
        lambda: NTXent(tau=0.0),
        lambda: type(objective("siglip"))(scale=-1.0),
        lambda: type(objective("smooth-ap"))(tau=-1.0),
        lambda: type(objective("triplet"))(margin=-1.0),
        lambda: type(objective("debiased-nt-xent"))(prior=1.0),
    ],
)
def test_ranges_hold_for_objects_too(made: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=r"must be (greater than|at least) 0"):
        made()


def test_every_default_and_searched_value_is_within_its_range() -> None:
    for declared in objectives:
        for parameter in declared.parameters:
            assert parameter.limits.hold(parameter.default), (declared.name, parameter.name)
        for name, where in objective(declared.name).searched().items():
            limits = next(p.limits for p in declared.parameters if p.name == name)
            assert limits.hold(where.low), (declared.name, name)
            assert limits.hold(where.high), (declared.name, name)


def test_defaults_are_not_printed_but_the_cell_is() -> None:
    assert str(objective("nt-xent(tau=0.1)")) == "nt-xent"
    assert str(objective("goal(triplet=nca, pair=lin, lambda=0.4)")) == (
        "goal(triplet=nca, pair=lin, lambda=0.4)"
    )
    assert str(simgrad.objective("nca(tau=5)")) == "goal(triplet=nca, pair=con, tau=5)"
    assert repr(NTXent(tau=0.5)) == "nt-xent(tau=0.5)"
    assert objective(made := Goal()) is made


def test_specs_of_the_tests_are_all_read_back() -> None:
    *declared, squares, pieces = everything()
    for o in declared:
        assert str(objective(str(o))) == str(o)
    assert names([squares, pieces]) == ["test-squares(power=3)", "test-pieces(power=3)"]


@pytest.fixture
def registry():  # type: ignore[no-untyped-def]
    """The registry as it was, whatever a test declares."""
    before = dict(objectives._declared)
    yield objectives
    objectives._declared.clear()
    objectives._declared.update(before)


def test_an_objective_of_your_own_is_one_function(registry) -> None:  # type: ignore[no-untyped-def]
    @declare("test-mine", description="pulls positives, pushes all negatives")
    def mine(similarities, positives, batch, push: float = 1.0):  # type: ignore[no-untyped-def]
        weights = torch.where(positives, -1.0, push).to(similarities.dtype)
        return (weights * similarities).sum(1), weights

    made = simgrad.objective("test-mine(push=0.5)")
    assert str(made) == "test-mine(push=0.5)"
    S = torch.rand(3, 3)
    torch.testing.assert_close(made.weigh(S).i2t, 0.5 - 1.5 * torch.eye(3))
    images = torch.randn(3, 4, requires_grad=True)
    made(images, torch.randn(3, 4), block=3).backward()
    assert images.grad is not None
    assert "test-mine" in [d.name for d in registry]
    with pytest.raises(InputError, match="declared twice"):
        declare("test-mine")(lambda similarities, positives, batch: None)


def test_a_rule_that_cannot_work_is_refused(registry) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="must take"):
        declare("test-short")(lambda similarities: None)
    with pytest.raises(InputError, match="needs a default"):
        declare("test-required")(lambda similarities, positives, batch, power: None)


def test_the_command_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    from simgrad.cli.objectives import objectives as command

    command()
    listed = capsys.readouterr().out
    assert all(d.name in listed for d in DECLARED)
    command("goal")
    explained = capsys.readouterr().out
    assert "sig-ms" in explained
    assert "lambda" in explained
    with pytest.raises(InputError, match="no objective 'gaol'"):
        command("gaol")


@pytest.mark.parametrize(
    "spec", ["siglip", "nt-xent(learned=true)", "debiased-nt-xent(learned=true)"]
)
def test_what_is_learned_is_a_vector_and_older_files_load(spec: str) -> None:
    made = objective(spec)
    assert {tuple(p.shape) for p in made.parameters()} == {(1,)}
    older = {name: torch.tensor(0.5) for name in made.state_dict()}  # numbers, once
    made.load_state_dict(older)
    assert all(p.tolist() == [0.5] for p in made.parameters())
    whole = torch.nn.ModuleList([made])
    whole.load_state_dict({f"0.{name}": torch.tensor(0.25) for name in older})
    assert all(p.tolist() == [0.25] for p in made.parameters())
    assert all(x is None or x.dim() == 0 for x in made.affine())
