"""The dashboard in a real browser, over an empty data folder and over a seeded one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from dashboard import formats
from tests.dashboard.conftest import Seeded
from tests.dashboard.seeding import FAILING_SKILL, write_events

Visit = Callable[[str], Chrome]

PAGES = ("", "skill", "selection", "weights", "alerts")


def body(driver: Chrome) -> str:
    return driver.find_element(By.CSS_SELECTOR, '[data-testid="stMain"]').text


def share(hits: int, n: int) -> str:
    """As the browser tells it: its text has plain spaces."""
    return formats.share(hits / n, n).replace("\u00a0", " ")


@pytest.mark.parametrize("path", [*PAGES, "skill?skill_id=none.such", "selection?event_id=none"])
def test_an_empty_folder_shows_what_to_do_next(empty_url: str, visit: Visit, path: str) -> None:
    driver = visit(f"{empty_url}/{path}")
    (panel,) = driver.find_elements(By.CSS_SELECTOR, '[data-pw="empty"]')
    assert panel.find_element(By.TAG_NAME, "h3").text
    if "?" not in path:
        assert panel.find_element(By.TAG_NAME, "code").text.startswith("pickwise ")


def test_the_overview_shows_the_seeded_numbers(seeded_url: str, seeded: Seeded, visit: Visit) -> None:
    text = body(visit(seeded_url))
    selections = seeded.of_type("selection")
    accepted = sum(
        1 for event in selections if set(event["picks"]) & {skill["skill_id"] for skill in event["candidates"]}
    )
    fallen_back = sum(1 for event in selections if event["fallback"])
    assert share(accepted, len(selections)) in text
    assert share(fallen_back, len(selections)) in text
    assert f"n = {len(selections)}" in text
    for title in ("Selection quality", "Call reliability", "Names and registry", "Discovery health", "Look at first"):
        assert title in text
    assert FAILING_SKILL in text
    assert f"{fallen_back} selections fell back" in text


def test_the_overview_draws_its_charts_and_fits_the_page(seeded_url: str, visit: Visit) -> None:
    driver = visit(seeded_url)
    charts = driver.find_elements(By.CSS_SELECTOR, '[data-testid="stPlotlyChart"]')
    assert len(charts) == 4
    assert all(chart.find_elements(By.CSS_SELECTOR, "path.js-line") for chart in charts)
    wide = driver.execute_script(
        "const main = document.querySelector('[data-testid=\"stMain\"]'); return main.scrollWidth - main.clientWidth"
    )
    assert wide <= 0


def test_a_skill_opens_from_the_overview(seeded_url: str, seeded: Seeded, visit: Visit) -> None:
    driver = visit(seeded_url)
    driver.find_element(By.LINK_TEXT, FAILING_SKILL).click()
    WebDriverWait(driver, 20).until(lambda seen: FAILING_SKILL in seen.find_element(By.TAG_NAME, "h1").text)
    visit(driver.current_url)
    text = body(driver)
    impressions = sum(
        FAILING_SKILL in [skill["skill_id"] for skill in event["candidates"]] for event in seeded.of_type("selection")
    )
    assert f"\n{impressions}\n" in text
    assert "HTTP 5xx" in text or driver.find_elements(By.CSS_SELECTOR, '[data-testid="stPlotlyChart"]')
    assert "Synchronise a shared team calendar" in text


def test_the_overview_leads_to_what_is_picked_instead(seeded_url: str, visit: Visit) -> None:
    driver = visit(seeded_url)
    driver.find_element(By.LINK_TEXT, "What is picked instead").click()
    WebDriverWait(driver, 20).until(lambda seen: "picked instead" in body(seen) and "Find a skill" not in body(seen))
    # The chosen list stands in the address, and the other one is a click away.
    assert "list=Confused+pairs" in visit(driver.current_url).current_url
    assert driver.find_elements(By.CSS_SELECTOR, "table.pw-table tbody tr")
    driver.find_element(By.XPATH, "//button[normalize-space()='All']").click()
    WebDriverWait(driver, 20).until(
        lambda seen: seen.find_elements(By.CSS_SELECTOR, "input[aria-label='Find a skill']")
    )


def test_a_selection_opens_by_its_address(seeded_url: str, seeded: Seeded, visit: Visit) -> None:
    event = next(event for event in seeded.of_type("selection") if event["picks"])
    driver = visit(f"{seeded_url}/selection?event_id={quote(event['event_id'])}")
    text = body(driver)
    assert event["query"] in text
    rows = driver.find_elements(By.CSS_SELECTOR, "table.pw-table tr")
    shown = [row.text for row in rows]
    for rank, candidate in enumerate(event["candidates"], 1):
        assert any(line.startswith(f"{rank} {candidate['skill_id']}") for line in shown)
    picked = driver.find_elements(By.CSS_SELECTOR, "tr.pw-picked")
    listed = [skill["skill_id"] for skill in event["candidates"]]
    assert len(picked) == len([pick for pick in event["picks"] if pick in listed])


def test_other_pages_of_a_seeded_folder_have_no_traceback(seeded_url: str, visit: Visit) -> None:
    for path in ("weights", "?window=Last+hour"):
        assert body(visit(f"{seeded_url}/{path}"))


def test_a_page_keeps_itself_up_to_date(seeded_url: str, seeded: Seeded, visit: Visit) -> None:
    def selections(numbers: range) -> list[dict[str, object]]:
        now = datetime.now(UTC).isoformat()
        menu = [{"skill_id": "a.b", "score": 0.5}]
        return [
            {"type": "selection", "event_id": f"s{n}", "time": now, "query": "q", "candidates": menu, "picks": ["a.b"]}
            for n in numbers
        ]

    write_events(seeded.data_dir, selections(range(3)), "live")
    driver = visit(f"{seeded_url}/?project=live&refresh=true")
    assert "n = 3" in body(driver)
    write_events(seeded.data_dir, selections(range(3, 7)), "live")
    WebDriverWait(driver, 30).until(lambda seen: "n = 7" in body(seen))
