"""Packages in a sandbox: dependencies, modules of one file, unknown names."""

import pytest
from tests.sandbox.specs import every_tier, spec_or_skip

from tropism import Session, ValidationError, make
from tropism.sandbox.limits import Limits
from tropism.sandbox.packages import find_packages
from tropism.sandbox.pool import SandboxSpec, Tier
from tropism.sandbox.sandbox import Sandbox


@every_tier
def test_modules_of_one_file_and_dependencies_can_be_imported(tier: Tier):
    spec_or_skip(tier)
    with Sandbox(SandboxSpec(tier, ("typing_extensions", "rich"), Limits(wall=60, cpu=60))) as sandbox:
        assert (
            sandbox.run("import typing_extensions, markdown_it; typing_extensions.Any is not None").stdout == "True\n"
        )
        assert "No module named 'numpy'" in sandbox.run("import numpy").stderr


def test_dependencies_and_shared_libraries_are_found():
    found = find_packages(("matplotlib", "json"))
    assert {"matplotlib", "mpl_toolkits", "numpy", "PIL", "dateutil"} <= set(found.paths)
    assert not {"json", "scipy", "bin", "share"} & set(found.paths)
    assert any(path.endswith("pillow.libs") for path in found.libraries)


@pytest.mark.parametrize("name", ["nonesuch", "os.path", "../numpy", "numpy "])
def test_an_unknown_package_is_rejected_with_the_list_of_known_ones(name: str):
    with pytest.raises(ValidationError, match=r"installed package: .*numpy, .*scipy"):
        SandboxSpec("A", (name,))


def test_packages_are_given_as_a_string_on_the_command_line():
    spec_or_skip("B")
    with Session(*make("Coding-v0", packages="numpy,typing_extensions")) as session:
        session.reset(seed=0)
        assert session.step({"code": "import numpy, typing_extensions; 1"}).obs.stdout == "1\n"
