"""What the words of a description say: when to pick a skill, when not to, which values it takes, and nothing at all.

Patterns for English and Chinese, tuned on published tools (docs/registry-review.md says how often they err).
"""

from __future__ import annotations

import re

#: From here to the end of its sentence a text names examples: an open list, not the values.
_EXAMPLES = re.compile(
    r"(?:\be\.g\b\.?|\bfor (?:example|instance)\b|\bsuch as\b|\blike\b|\bincluding\b"
    r"|例如|比如|譬如|诸如|包括|如(?![果何下需]))[^。;；\n]*",
    re.IGNORECASE,
)
_PARENTHESES = re.compile(r"\([^()]*\)|（[^（）]*）")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|[。！？]|\n\s*\n")

_ABSTRACT = re.compile(
    r"\b(?:miscellaneous|and (?:so on|more)|etc|stuff|all (?:sorts|kinds) of|general[- ]purpose|generic|helper|"
    r"helps? (?:you|with)|deals? with|(?:do|does|handles?|manages?|processes|performs?) "
    r"(?:all|any|anything|everything|(?:various )?things|requests?|data|tasks?|operations|actions|it))\b"
    r"|等等|万能|通用(?:的)?(?:工具|功能|助手|接口|方法)|相关(?:的)?(?:操作|功能|事务|事情|任务|工作|处理)"
    r"|(?:处理|管理|执行|提供)(?:各种|各类|多种|一些|所有|任何)(?:的)?(?:操作|功能|事务|事情|任务|请求|数据|信息|内容|问题|需求|服务)",
    re.IGNORECASE,
)
_SAYS_WHEN = re.compile(
    r"\bwhen(?:ever)?\b(?! (?:available|possible|provided|specified|present|set|offset|recruiting)\b)"
    r"|\bif (?:(?:a|the|your) )?(?:users?|you|asked|someone)\b|\bin case\b|\b(?:use|call) (?:this|it)\b"
    r"|\b(?:users?|you|someone|people|they) (?:asks?|wants?|needs?|mentions?)\b"
    r"|(?<!not )\b(?:useful|ideal|great|perfect|good|best|suitable|helpful|recommended|intended|meant) (?:for|to)\b"
    r"|当(?![前地代下日今天年])[^，。；\n]{1,40}?时(?!间)|(?:如果|若)(?:用户|你|您|需要)|(?:需要|用于在)[^，。；\n]{0,40}时(?!间)"
    r"|(?:用户|你|您)(?:需要|想要?|询问|要求|提到)|适用于|适合(?:用于|需要)|适用场景\s*[:：]|使用场景\s*[:：]|时(?:使用|调用)",
    re.IGNORECASE,
)
_SAYS_NOT_FOR = re.compile(
    r"\bnot (?:suitable|intended|meant|designed|recommended|for)\b|\b(?:do not|don't|never|should not|shouldn't) "
    r"(?:use|call)\b|不适[用合]|不(?:能|要|应|可)?用于|不要(?:使用|调用)|请勿(?:使用|调用|用于)",
    re.IGNORECASE,
)
_LISTS_VALUES = re.compile(
    r"\bone of\b(?! (?:the|your|its|their|these|those)\b(?! following))|\beither \S+ or \S+(?=[.,;)]|$)"
    r"|\b(?:allowed|possible|valid|accepted|supported)(?: \w+)?(?: are| is)?\s*:|\boptions? (?:are|is)\b|\boptions\s*:"
    r"|\bchoose from\b|(?:['\"][\w -]+['\"]\s*(?:,|、|，|/|\||或|or|and)\s*)+['\"][\w -]+['\"]"
    r"|(?:`\w+`\s*(?:,|、|，|/|\||或|or|and)\s*)+`\w+`"
    r"|\b[A-Za-z_-]+(?:\s*\|\s*[A-Za-z_-]+)+\b"
    r"|可选\w{1,3}\s*[:：]|可选值|可能(?:的)?值|候选[集值]|取值|可选项|选项(?:有|为|包括|[:：])|之一|枚举",
    re.IGNORECASE,
)


def abstract_phrase(description: str) -> str | None:
    """The phrase that makes a description say nothing, looked for in its first two sentences without their examples.

    Further down stand notes on usage, where such words are harmless.
    """
    opening = " ".join(_SENTENCE_END.split(description.strip())[:2])
    found = _ABSTRACT.search(_EXAMPLES.sub("", _PARENTHESES.sub("", opening)))
    return found[0] if found else None


def says_when(description: str) -> bool:
    """Whether a description says when to pick the skill, not only what it does."""
    return _SAYS_WHEN.search(description) is not None


def says_not_for(description: str) -> bool:
    """Whether a description says what the skill is not for."""
    return _SAYS_NOT_FOR.search(description) is not None


def lists_values(description: str) -> bool:
    """Whether a parameter's description lists the values that it takes; examples are no such list."""
    return _LISTS_VALUES.search(_EXAMPLES.sub("", description)) is not None
