"""XML from strangers, read into a small tree or refused.

What has hurt other servers cannot be written here: no document type, so no entities to expand and nothing to
fetch; sizes, depth and counts are capped while reading. The text goes to expat in one piece, because older
expats take quadratic time over a long token that comes in many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from tandembus.errors import MalformedData

MAX_ELEMENTS: Final = 1_000
MAX_ATTRIBUTES: Final = 32
MAX_EQUALS_SIGNS: Final = 4_000
"""As many attributes a document may have at most: expat reads all those of a tag before it tells of any."""
SAFER_EXPAT: Final = (2, 6, 0)
ENCODINGS: Final = ("utf-8", "utf-16", "us-ascii")
"""The SDKs send UTF-8. The others that expat reads would only be a way to hide what a filter should see."""
_SEPARATOR: Final = " "
"""Cannot stand in a local name, so 'namespace local' has one reading only."""


@dataclass(slots=True)
class Element:
    """A tag by its namespace and local name; prefixes are forgotten, as they mean nothing."""

    namespace: str
    name: str
    attributes: dict[str, str]
    """By 'namespace local' or, without a namespace, 'local'."""
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def child(self, namespace: str, name: str) -> Element | None:
        for element in self.children:
            if element.name == name and element.namespace == namespace:
                return element
        return None


def attribute_key(namespace: str, name: str) -> str:
    return namespace + _SEPARATOR + name


def old_parser_note() -> str | None:
    """What an administrator should know about the expat that Python was built with, if anything."""
    if expat.version_info >= SAFER_EXPAT:
        return None
    return (
        f"{expat.EXPAT_VERSION} is older than {'.'.join([str(part) for part in SAFER_EXPAT])}: its known weaknesses "
        "need a document type or XML in many pieces, and are out of reach here; an update is a good idea all the same"
    )


def read_xml(data: bytes, max_size_bytes: int, max_depth: int) -> Element:
    """The document's root. Raises MalformedData with what is wrong and where."""
    if len(data) > max_size_bytes:
        raise MalformedData(f"The XML document has {len(data)} bytes; at most {max_size_bytes} are allowed.")
    if data.count(b"=") > MAX_EQUALS_SIGNS:
        raise MalformedData(f"The XML document has more than {MAX_EQUALS_SIGNS} attributes or equals signs.")
    return _Reader(max_depth).read(data)


class _Reader:
    """Builds the tree from expat's calls and stops them as soon as a cap is passed."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._element_count = 0
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._root: Element | None = None

    def read(self, data: bytes) -> Element:
        parser = self._parser()
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            problem = expat.ErrorString(error.code)
            raise MalformedData(
                f"The XML document is not well-formed: {problem}, line {error.lineno}, column {error.offset}."
            ) from None
        except (ValueError, LookupError):
            # What Python's own codecs say to an encoding that expat asks them for.
            raise MalformedData("The XML document's encoding is not supported; UTF-8 is.") from None
        assert self._root is not None
        return self._root

    def _parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._entity_declaration
        parser.ExternalEntityRefHandler = self._external_entity
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        return parser

    def _declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ENCODINGS:
            raise MalformedData(f"The XML document's encoding '{encoding[:32]}' is not supported; UTF-8 is.")

    def _doctype(self, *_: object) -> None:
        raise MalformedData("The XML document has a document type declaration, which is not allowed.")

    def _entity_declaration(self, *_: object) -> None:
        raise MalformedData("The XML document declares entities, which is not allowed.")

    def _external_entity(self, *_: object) -> int:
        raise MalformedData("The XML document refers to another one, which is not allowed.")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._element_count += 1
        if self._element_count > MAX_ELEMENTS:
            raise MalformedData(f"The XML document has more than {MAX_ELEMENTS} elements.")
        if len(self._open) >= self._max_depth:
            raise MalformedData(f"The XML document is nested deeper than {self._max_depth} elements.")
        if len(attributes) > MAX_ATTRIBUTES:
            raise MalformedData(f"An element of the XML document has more than {MAX_ATTRIBUTES} attributes.")
        namespace, _, name = tag.rpartition(_SEPARATOR)
        element = Element(namespace, name, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)
        self._texts.append([])

    def _end(self, _tag: str) -> None:
        self._open.pop().text = "".join(self._texts.pop())

    def _characters(self, text: str) -> None:
        self._texts[-1].append(text)
