"""Beyond this machine only with keys, or when it is asked for in so many words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.control import Control
from collector.keys import KeyStore
from gateway.exposure import ExposedError, pages_host, refuse_exposed_pages, refuse_exposure
from pickwise.settings import Settings

LOOPBACK = ("127.0.0.1", "127.8.8.8", "::1", "localhost")
EXPOSED = ("0.0.0.0", "::", "192.168.1.5", "example.com")


@pytest.mark.parametrize("host", LOOPBACK)
def test_this_machine_may_always_be_listened_on(tmp_path: Path, host: str) -> None:
    settings = Settings(data_dir=tmp_path / "none", host=host)
    refuse_exposure(settings)
    refuse_exposed_pages(settings)
    assert pages_host(settings) == host
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("host", EXPOSED)
def test_other_addresses_need_an_active_key(tmp_path: Path, host: str) -> None:
    settings = Settings(data_dir=tmp_path, host=host)
    with pytest.raises(ExposedError, match=r"pickwise keys create.*--insecure"):
        refuse_exposure(settings)
    refuse_exposure(settings.model_copy(update={"insecure": True}))
    control = Control(tmp_path)
    key, _ = KeyStore(control).create("p", ["read"])
    refuse_exposure(settings)
    KeyStore(control).revoke(key.id)
    control.close()
    with pytest.raises(ExposedError, match="no active API key"):
        refuse_exposure(settings)


def test_keys_that_nobody_is_asked_for_keep_nobody_out(tmp_path: Path) -> None:
    control = Control(tmp_path)
    KeyStore(control).create("p", ["read"])
    control.close()
    settings = Settings(data_dir=tmp_path, host="0.0.0.0", require_keys=False)
    with pytest.raises(ExposedError, match="require_keys"):
        refuse_exposure(settings)


@pytest.mark.parametrize("host", EXPOSED)
def test_the_dashboard_stays_here_whatever_keys_there_are(tmp_path: Path, host: str) -> None:
    def settings(**fields: Any) -> Settings:
        return Settings(data_dir=tmp_path, host=host, **fields)

    control = Control(tmp_path)
    KeyStore(control).create("p", ["read"])
    control.close()
    with pytest.raises(ExposedError, match="--insecure"):
        refuse_exposed_pages(settings())
    refuse_exposed_pages(settings(insecure=True))
    assert (pages_host(settings()), pages_host(settings(insecure=True))) == ("127.0.0.1", host)
