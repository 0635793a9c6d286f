"""Validation of a server's settings."""

from typing import Any

import pytest

from tropism.errors import ValidationError
from tropism.serve.settings import Settings

BAD: list[dict[str, Any]] = [
    {"host": "0.0.0.0"},
    {"host": "example.com"},
    {"host": "128.0.0.1"},
    {"host": "127.0.0.1.example.com"},
    {"host": "::"},
    {"host": ""},
    {"port": -1},
    {"port": 65536},
    {"max_sessions": 0},
    {"max_sessions_per_token": 0},
    {"max_sockets": 0},
    {"max_body": 0},
    {"idle_timeout": 0.0},
    {"header_timeout": -1.0},
    {"body_timeout": float("nan")},
    {"tokens": ("",)},
    {"tokens": ("two words",)},
    {"tokens": ("ümlaut",)},
]


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_invalid_settings_are_rejected(settings: dict[str, Any]):
    with pytest.raises(ValidationError):
        Settings(**settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "localhost"])
def test_a_loopback_address_needs_no_token(host: str):
    assert Settings(host=host).host == host


def test_a_public_address_is_allowed_with_a_token():
    assert Settings(host="0.0.0.0", tokens=("secret",)).host == "0.0.0.0"
    assert Settings().host == "127.0.0.1"
