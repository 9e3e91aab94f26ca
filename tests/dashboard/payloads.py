"""Texts that try to become something else than a text: each would set `window.hit`, ask somebody, or call somewhere."""

from __future__ import annotations

from typing import Final

HIT: Final = "window.hit=1"
PAYLOADS: Final[tuple[str, ...]] = (
    # Markup that runs.
    f"<script>{HIT}</script>",
    f"</script><script>{HIT}</script>",
    f"<SCRIPT SRC=data:text/javascript,{HIT}></SCRIPT>",
    f"<img src=x onerror={HIT}>",
    f'<img src="x" onerror="{HIT}">',
    f"<img src=/nothing onload={HIT} onerror={HIT}",
    f"<svg onload={HIT}>",
    f"<svg><script>{HIT}</script></svg>",
    f"<svg><animate onbegin={HIT} attributeName=x dur=1s>",
    f"<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{HIT}'/>#x\">",
    f"<math><maction actiontype=statusline xlink:href=javascript:{HIT}>x",
    f"<body onload={HIT}>",
    f"<details open ontoggle={HIT}>",
    f"<video><source onerror={HIT}></video>",
    f"<input autofocus onfocus={HIT}>",
    f"<marquee onstart={HIT}>",
    f'<iframe src="javascript:parent.{HIT}"></iframe>',
    f'<iframe srcdoc="<script>parent.{HIT}</script>"></iframe>',
    f'<object data="javascript:{HIT}"></object>',
    f'<embed src="javascript:{HIT}">',
    '<base href="http://127.0.0.1:9/">',
    '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/">',
    '<link rel="stylesheet" href="http://127.0.0.1:9/x.css">',
    f'<form action="javascript:{HIT}"><button autofocus>x',
    # Out of an attribute.
    f'" onmouseover="{HIT}" x="',
    f"' onfocus='{HIT}' autofocus='",
    f'"><img src=x onerror={HIT}>',
    f"--><img src=x onerror={HIT}>",
    f"</textarea></title></style></pre><img src=x onerror={HIT}>",
    # Addresses.
    f"javascript:{HIT}",
    f"JaVaScRiPt:{HIT}//",
    f"data:text/html,<script>{HIT}</script>",
    "http://127.0.0.1:9/somewhere?else",
    "../../../../etc/passwd",
    # Templates.
    f"${{{HIT}}}",
    f"{{{{constructor.constructor('{HIT}')()}}}}",
    f"<%= {HIT} %>",
    f"`+{HIT}+`",
    "#{7*7} *{7*7} @{7*7}",
    # Styles.
    "<style>body{display:none}</style>",
    '<div style="position:fixed;inset:0;background:url(http://127.0.0.1:9/)">',
    # Other languages.
    "'; DROP TABLE messages; --",
    "' OR '1'='1",
    '{"__proto__": {"hit": 1}}',
    "__proto__",
    "constructor",
    # Letters that are not what they seem.
    "\u202egnp.exe\u202c \u2066left\u2069",
    "zero\u200bwidth\u200d\ufeff",
    "👩‍👩‍👧‍👦 e\u0301 \U000e0041 ﷽ Z\u0351\u0346\u030a\u0343\u036b",
    "null",
    "first\r\nSet-Cookie: hit=1\r\n\r\n<b>second</b>",
    f"<b>{'long ' * 400}</b>",
)

NAMES: Final[tuple[str, ...]] = (
    "__proto__",
    "constructor",
    "toString",
    "null",
    "undefined",
    "NaN",
    "0",
    "javascript",
    "hasOwnProperty",
)
"""What names of entities allow: letters, digits and few signs, so only words that mean something to scripts."""
