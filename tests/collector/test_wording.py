"""What the wording of published tools says, in English and Chinese: each rule with what it must find and let pass."""

from __future__ import annotations

import pytest

from collector.wording import abstract_phrase, lists_values, says_not_for, says_when


@pytest.mark.parametrize(
    ("description", "phrase"),
    [
        ("Handles requests.", "Handles requests"),
        ("Tool that provides all sorts of information about houses", "all sorts of"),
        ("Access web pages, analyze PDFs, generate QR codes, etc.", "etc"),
        ("General-purpose helper", "General-purpose"),
        ("处理各种请求", "处理各种请求"),
        ("执行相关操作", "相关操作"),
        ("Show the distribution of points, such as attractions, hospitals, supermarkets, etc.", None),
        ("Find places by type (restaurants, schools, etc.).", None),
        ("Read a file. Returns its text. Handles requests of any size.", None),
        ("Handles various text encodings.", None),
        ("用于计算个人的各种费用", None),
        ("定位和评价各类美食商家", None),
    ],
)
def test_abstract_wording(description: str, phrase: str | None) -> None:
    assert abstract_phrase(description) == phrase


@pytest.mark.parametrize(
    "description",
    [
        "Send mail. Use it when somebody should be written to.",
        "If a user mentions a champion, call this.",
        "Useful for trip planning.",
        "当用户询问某趟列车的经停站时使用此接口",
        "适用场景：用户询问组件",
        "如果用户想退款",
        "主要用于在用户提供**城市名**作为出发地或到达地时，为接口准备参数",
    ],
)
def test_a_trigger_is_seen(description: str) -> None:
    assert says_when(description)


@pytest.mark.parametrize(
    "description",
    [
        "Full text when available from PMC",
        "Check if packages are deprecated",
        "Chart that is not suitable for single places",
        "获取当前日期",
        "设计当代艺术展览",
        "用于跟踪软件项目中的缺陷",
        "推荐适合的室内活动",
    ],
)
def test_what_it_does_is_no_trigger(description: str) -> None:
    assert not says_when(description)


def test_exclusions_are_seen() -> None:
    assert says_not_for("It is not suitable for showing single places.")
    assert says_not_for("Do not use for refunds")
    assert says_not_for("请勿用于退款")
    assert not says_not_for("Do not skip the approval step")


@pytest.mark.parametrize(
    ("description", "lists"),
    [
        ('Valid intervals: "1d", "5d", "1wk"', True),
        ("one of asc, desc", True),
        ("either asc or desc", True),
        ("asc | desc", True),
        ("用户的满意度，候选集: {'满意', '一般', '不满意'}", True),
        ("可选标志：[startTime, arriveTime]", True),
        ("'高'、'中'、'低'", True),
        ("Target encoding (e.g., 'utf8', 'big5', 'gbk')", False),
        ("Label of a segment, such as 'A', 'B', or 'C'.", False),
        ('城市，例如："北京", "上海"', False),
        ("若要查询多个城市，请用|分割", False),
        ("必须是通过 `get-station-code` 或 `get-city-code` 得到的编码", False),
        ("The id of one of the repositories", False),
    ],
)
def test_values_are_told_from_examples(description: str, lists: bool) -> None:
    assert lists_values(description) is lists
