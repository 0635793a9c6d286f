"""The public names of `tropism`, and the modules that importing it must not load."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import tropism

HEAVY = ("jax", "jaxlib", "equinox", "gymnasium")
MACHINERY = {"TYPE_CHECKING", "load_on_use"}  # used for lazy loading
SOURCE = Path(tropism.__file__).parent


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", tropism.__all__)
def test_every_public_name_resolves(name: str):
    assert not isinstance(getattr(tropism, name), ModuleType)


@pytest.mark.parametrize("name", [name for name in tropism.__all__ if name[0].isupper()])
def test_a_public_class_is_the_one_its_own_module_defines(name: str):
    value = getattr(tropism, name)
    assert value.__name__ == name
    assert getattr(import_module(value.__module__), name) is value


@pytest.mark.slow
def test_all_equals_the_visible_names():
    result = python("import tropism; [getattr(tropism, name) for name in tropism.__all__]; print(*vars(tropism))")
    packages = {path.stem for path in SOURCE.iterdir()}
    visible = {name for name in result.stdout.split() if not name.startswith("_")} - packages - MACHINERY
    assert sorted(visible | {"__version__"}) == tropism.__all__, result.stderr
    assert dir(tropism) == tropism.__all__


def test_star_import_brings_every_name():
    result = python("from tropism import *; import tropism; print(set(tropism.__all__) <= set(globals()))")
    assert result.stdout.strip() == "True", result.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'CartPol'"):
        _ = tropism.CartPol  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("statement", ["import tropism", "import tropism.client", "import tropism.wire.messages"])
def test_light_imports_load_neither_jax_nor_gymnasium(statement: str):
    result = python(f"import sys; {statement}; print(*[name for name in {HEAVY} if name in sys.modules])")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == ""


def test_the_command_line_starts_without_jax():
    result = python(f"import sys, tropism.cli; print(*[name for name in {HEAVY} if name in sys.modules])")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == ""


def test_errors_and_messages_resolve_without_jax():
    result = python("import sys, tropism; tropism.ValidationError; tropism.State; print('jax' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


@pytest.mark.slow
def test_the_core_does_not_import_gymnasium():
    result = python("import sys, tropism; tropism.make, tropism.Session; print('gymnasium' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_the_command_without_its_extra_names_the_package_to_install():
    result = python("import sys; sys.modules['typer'] = None; from tropism.__main__ import main; main()")
    assert result.returncode == 2
    assert result.stderr == 'The command line needs typer: pip install "tropism[cli]"\n'
