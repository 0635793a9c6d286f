"""Every registered environment keeps every law."""

import pytest

from tropism import check_environment, make, registered


@pytest.mark.parametrize("id", [spec.id for spec in registered()])
def test_a_registered_environment_keeps_the_law(id: str):
    report = check_environment(make(id))
    assert report.ok, str(report)
