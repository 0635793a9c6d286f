"""The registry: ids, suggestions, and other packages' environments."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.core.lines import HostLine, Line

from tropism.core.registry import EnvironmentSpec, identify, make, register, registered
from tropism.envs.cartpole import CartPole
from tropism.envs.grid_world import GridWorld
from tropism.errors import UnknownEnvironmentError, ValidationError


def test_make_returns_the_environment_and_its_params():
    env, params = make("CartPole-v1", params={"gravity": 3.7})
    assert env == CartPole()
    assert (params.gravity, params.masscart) == (3.7, 1.0)
    assert make("GridWorld-v0", size=8)[0] == GridWorld(8)


def test_specs_have_their_source():
    specs = {spec.id: spec for spec in registered()}
    assert all(isinstance(spec, EnvironmentSpec) for spec in specs.values())
    cartpole = specs["CartPole-v1"]
    assert (cartpole.traced, cartpole.source) == (True, "built-in")


@pytest.mark.slow
def test_listing_the_ids_compiles_nothing():
    code = "import jax; jax.config.update('jax_log_compiles', True); import tropism; tropism.registered()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "compilation" not in done.stderr


def test_a_spec_has_the_traced_flag_of_its_environment():
    assert all(make(spec.id)[0].pure == spec.traced for spec in registered())


@pytest.mark.parametrize("id", ["CartPol-v1", "cartpole-v1", "CartPole"])
def test_an_unknown_id_suggests_similar_ones(id: str):
    with pytest.raises(UnknownEnvironmentError, match=f"no environment '{id}'; did you mean CartPole-v1") as caught:
        make(id)
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, ValidationError)
    assert (caught.value.name, caught.value.value) == ("id", id)
    assert str(caught.value).startswith("no environment")


def test_a_dissimilar_id_lists_all_ids():
    with pytest.raises(UnknownEnvironmentError, match=r"there are: CartPole-v1, "):
        make("zzz")


def test_an_unknown_argument_is_rejected_by_name():
    with pytest.raises(ValidationError, match="'width'; expected an argument of GridWorld-v0: size"):
        make("GridWorld-v0", width=3)
    with pytest.raises(ValidationError, match="'size'; expected no argument: CartPole-v1 takes none"):
        make("CartPole-v1", size=3)


def test_an_invalid_argument_or_param_is_rejected():
    with pytest.raises(ValidationError, match="size is 1; expected a whole number of at least 2"):
        make("GridWorld-v0", size=1)
    with pytest.raises(ValidationError, match="'gravty'; expected a field of CartPoleParams"):
        make("CartPole-v1", params={"gravty": 1})


def test_an_environment_without_params_rejects_any_and_is_named():
    with pytest.raises(ValidationError, match="'gravity'; expected a field of EchoParams: it has none"):
        make("Echo-v0", params={"gravity": 1})
    with pytest.raises(ValidationError, match="expected a dict of numbers or ConnectFourParams"):
        make("ConnectFour-v0", params=CartPole().default_params())


@pytest.mark.usefixtures("separate_registry")
def test_register_accepts_a_class_an_instance_or_a_function():
    register("Line-v0", Line)
    register("Line-v1", GridWorld(3))

    @register("Line-v2")
    def long_grid(size: int = 9) -> Any:  # pyright: ignore[reportUnusedFunction]
        """A long grid."""
        return GridWorld(size)

    @register("Host-v0")
    class Host(HostLine):  # pyright: ignore[reportUnusedClass]
        """A host."""

    assert make("Line-v0")[0] == Line()
    assert make("Line-v1")[0] == GridWorld(3)
    assert make("Line-v2")[0] == GridWorld(9)
    assert make("Line-v2", size=4)[0] == GridWorld(4)
    assert long_grid().size == 9
    last = {spec.id: spec for spec in registered()}
    assert (last["Line-v2"].summary, last["Line-v2"].source) == ("A long grid.", "register()")
    assert (last["Host-v0"].summary, last["Host-v0"].traced) == ("A host.", False)


@pytest.mark.usefixtures("separate_registry")
def test_a_registered_id_needs_force():
    with pytest.raises(ValidationError, match="not registered yet, or force=True"):
        register("CartPole-v1", Line)
    assert make("CartPole-v1")[0] == CartPole()
    register("CartPole-v1", Line, force=True)
    assert make("CartPole-v1")[0] == Line()


@pytest.mark.usefixtures("separate_registry")
@pytest.mark.parametrize("thing", [3, "Line", int, object(), lambda: 3, lambda size: Line(), (Line(), None)])
def test_other_objects_are_rejected(thing: Any):
    with pytest.raises(ValidationError):
        register("Thing-v0", thing)
    assert "Thing-v0" not in [spec.id for spec in registered()]


@pytest.mark.usefixtures("separate_registry", "untyped")
@pytest.mark.parametrize("id", ["", " Line-v0", "a/b", "module:Line", 3, None])
def test_an_invalid_id_is_rejected(id: Any):
    with pytest.raises(ValidationError, match="a name such as 'Maze-v0'"):
        register(id, Line)


def test_identify_returns_the_id_or_class_and_the_arguments():
    assert identify(CartPole()) == {"id": "CartPole-v1", "arguments": {}}
    assert identify(make("GridWorld-v0", size=7)[0]) == {"id": "GridWorld-v0", "arguments": {"size": 7}}
    assert identify(GridWorld(31)) is None
    assert identify(Line()) == {"class": "tests.core.lines:Line", "arguments": {}}


PLUGIN = """
from tropism.envs.grid_world import GridWorld

class Maze(GridWorld):
    "A maze from elsewhere."
"""
ENTRY_POINTS = """[tropism.environments]
Maze-v0 = plugin_of_the_test:Maze
Broken-v0 = plugin_of_the_test:Missing
Absent-v0 = missing_module:Maze
Number-v0 = math:pi
CartPole-v1 = plugin_of_the_test:Maze
"""
PROGRAM = """
import warnings
from tropism import make, registered
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    specs = {spec.id: spec for spec in registered()}
print(specs["Maze-v0"].source, "|", specs["Maze-v0"].summary, "|", make("Maze-v0", size=6)[0].size)
print(sorted(set(specs) & {"Broken-v0", "Absent-v0", "Number-v0"}), specs["CartPole-v1"].source)
print(*sorted(str(w.message).split(" is skipped")[0] for w in caught), sep="; ")
"""


@pytest.mark.slow
def test_entry_points_are_registered_and_a_broken_one_only_warns(tmp_path: Path):
    (tmp_path / "plugin_of_the_test.py").write_text(PLUGIN)
    info = tmp_path / "plugin_of_the_test-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-the-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    first, second, third = result.stdout.strip().split("\n")
    assert first == "plugin_of_the_test:Maze | A maze from elsewhere. | 6"
    assert second == "[] built-in"
    assert [text.split("'")[1] for text in third.split("; ")] == ["Absent-v0", "Broken-v0", "Number-v0"]
