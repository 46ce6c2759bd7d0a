"""The dashboard: ``streamlit run dashboard/app.py``, or ``pickwise dashboard``. Data folder: ``PICKWISE_DATA_DIR``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from dashboard import cards, links, state
from dashboard.views import alerts, overview, selection, skill, weights

_LOGO = Path(__file__).with_name("logo.svg")
#: Pages in the order of the menu: address, title, what shows it.
PAGES = (
    (links.OVERVIEW, "Overview", overview.page),
    (links.SKILLS, "Skills", skill.page),
    (links.SELECTIONS, "Selections", selection.page),
    (links.WEIGHTS, "Weights and models", weights.page),
    (links.ALERTS, "Alerts", alerts.page),
)


def main() -> None:
    st.set_page_config(page_title="Pickwise", layout="wide", initial_sidebar_state=230)
    st.logo(str(_LOGO), size="large")
    cards.style()
    pages = [
        st.Page(partial(state.render, page), title=title, url_path=path, default=path == links.OVERVIEW)
        for path, title, page in PAGES
    ]
    chosen = st.navigation(pages)
    state.sidebar()
    chosen.run()


main()
