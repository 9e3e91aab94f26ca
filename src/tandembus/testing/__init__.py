"""A namespace inside the test process, for other people's test suites. See docs/testing.md.

Nothing is imported before it is asked for: the pytest plugin is loaded in every session of everybody who has this
package installed, and most of those sessions do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandembus.testing.asynchronous import AsyncEmbeddedNamespace
    from tandembus.testing.embedded import EmbeddedNamespace

__all__ = ["AsyncEmbeddedNamespace", "EmbeddedNamespace"]


def __getattr__(name: str) -> object:
    if name == "EmbeddedNamespace":
        from tandembus.testing.embedded import EmbeddedNamespace

        return EmbeddedNamespace
    if name == "AsyncEmbeddedNamespace":
        from tandembus.testing.asynchronous import AsyncEmbeddedNamespace

        return AsyncEmbeddedNamespace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
