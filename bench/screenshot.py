"""Take a picture of a running dashboard: ``python bench/screenshot.py URL TARGET.png [--dark] [--full]``.

Needs Debian's chromium and chromium-driver (`make browser`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

CHROMEDRIVER = "/usr/bin/chromedriver"
WIDTH, HEIGHT = 1440, 1000
#: A page is drawn when its script has ended with a heading, every element has arrived (until its code is loaded it is
#: an empty container), and every chart has its picture.
_DRAWN = """
    const all = (selector) => [...document.querySelectorAll(selector)];
    return all('[data-test-script-state="notRunning"]').length > 0
        && all('.pw-head h1').length > 0
        && all('[data-testid="stSkeleton"], [data-stale="true"]').length === 0
        && all('[data-testid="stElementContainer"]').every((element) => element.querySelector('[data-testid]'))
        && all('[data-testid="stPlotlyChart"]').every((chart) => chart.querySelector('.main-svg'));
"""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


@contextmanager
def browser(width: int = WIDTH, height: int = HEIGHT, dark: bool = False) -> Iterator[webdriver.Chrome]:
    """A headless Chromium with a profile of its own."""
    options = Options()
    for flag in _FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--window-size={width},{height}")
    if dark:
        options.add_argument("--blink-settings=preferredColorScheme=0")
    with tempfile.TemporaryDirectory(prefix="pickwise-browser-", ignore_cleanup_errors=True) as profile:
        options.add_argument(f"--user-data-dir={profile}")
        driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
        try:
            driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia",
                {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
            )
            yield driver
        finally:
            driver.quit()


def open_page(driver: webdriver.Chrome, url: str, timeout_s: float = 60.0, settle_s: float = 0.7) -> None:
    """Open a page of the dashboard and wait until it is drawn. Raises TimeoutException."""
    driver.get(url)
    WebDriverWait(driver, timeout_s, poll_frequency=0.1).until(lambda seen: seen.execute_script(_DRAWN))
    time.sleep(settle_s)


def take(driver: webdriver.Chrome, target: Path, full: bool) -> None:
    """Save what is seen; ``full``: the whole page, however long."""
    if full:
        length = driver.execute_script("return document.querySelector('[data-testid=\"stMain\"]').scrollHeight")
        _resize(driver, max(int(length), HEIGHT))
    target.parent.mkdir(parents=True, exist_ok=True)
    driver.save_screenshot(str(target))


def _resize(driver: webdriver.Chrome, height: int) -> None:
    """Exactly so many pixels of page: a window's own size counts its frame."""
    metrics = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    time.sleep(0.8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("target", type=Path)
    parser.add_argument("--dark", action="store_true", help="with the dark theme")
    parser.add_argument("--full", action="store_true", help="the whole page, not only what fits 1440 x 1000")
    chosen = parser.parse_args()
    with browser(dark=chosen.dark) as driver:
        _resize(driver, HEIGHT)
        open_page(driver, chosen.url)
        take(driver, chosen.target, chosen.full)


if __name__ == "__main__":
    main()
