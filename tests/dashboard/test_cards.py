from __future__ import annotations

from dashboard import cards

EVIL = '<script>alert("x")</script>'


def test_text_from_outside_is_escaped_everywhere() -> None:
    pieces = [
        cards.text(EVIL),
        cards.text(EVIL, "bad"),
        cards.note(EVIL),
        cards.badge(EVIL),
        cards.strong(EVIL),
        cards.link(EVIL, f'skill?skill_id="{EVIL}'),
        cards.join([EVIL, cards.text(EVIL)]),
    ]
    for piece in pieces:
        assert "<script>" not in piece.markup
        assert "&lt;script&gt;" in piece.markup


def test_a_link_cannot_leave_its_attribute() -> None:
    assert '"><b>' not in cards.link("x", '"><b>').markup
