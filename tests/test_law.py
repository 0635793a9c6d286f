"""Every registered environment keeps every law."""

import pytest

from tropism import check_environment, make, registered

SIMULATED_AIR = {"PlumeNavMeander-v0", "PlumeNavPuffs-v0", "PlumeNavFilaments-v0"}  # minutes of compiling


def marked(id: str):
    """An id to test with: slow where the air is simulated."""
    return pytest.param(id, marks=pytest.mark.slow if id in SIMULATED_AIR else ())


@pytest.mark.parametrize("id", [marked(spec.id) for spec in registered()])
def test_a_registered_environment_keeps_the_law(id: str):
    report = check_environment(make(id))
    assert report.ok, str(report)
