"""The webhook receiver records what is posted."""

from __future__ import annotations

import httpx

from demo.receiver import AlertReceiver


def test_deliveries_are_recorded_in_order_and_bad_ones_refused() -> None:
    with AlertReceiver() as receiver:
        assert httpx.post(receiver.url, json={"rule": "a", "state": "firing"}).status_code == 204
        assert httpx.post(receiver.url, content=b"{half").status_code == 400
        httpx.post(receiver.url, json={"rule": "a", "state": "resolved"})
        assert [item["state"] for item in receiver.deliveries] == ["firing", "resolved"]
