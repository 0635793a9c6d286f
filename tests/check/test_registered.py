"""Every registered environment keeps all laws."""

import pytest
from tests.ids import ALL, mark_slow

from tropism import check_environment, make


@pytest.mark.parametrize("id", mark_slow(ALL, {"CartPole-v1", "Echo-v0"}))
def test_a_registered_environment_keeps_all_laws(id: str):
    report = check_environment(make(id))
    assert report.ok, str(report)
