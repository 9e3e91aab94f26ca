"""Messages as any client may send them, for tests that hold for all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from tandembus.amqp.encoding import symbol, ubyte, uint, ulong
from tandembus.amqp.encoding.sections import MessageSections, encode_message
from tests.unit.amqp.encoding.amqp_values import ASCII, BINARY, TEXT, keys, simple, values

DATA, SEQUENCE, VALUE = 0x75, 0x76, 0x77
Map = dict[object, object]

names: st.SearchStrategy[object] = ASCII.filter(lambda name: not name.startswith("x-opt-")).map(symbol)
maps: st.SearchStrategy[Map | None] = st.none() | st.dictionaries(names, values, max_size=4)
application_properties: st.SearchStrategy[Map | None] = st.none() | st.dictionaries(
    keys.map(lambda key: key), simple, max_size=4
)
ids: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=128),
    st.uuids(),
    st.just(ulong(5)),
)


@st.composite
def properties(draw: st.DrawFn) -> list[object] | None:
    fields: list[object] = [draw(ids), draw(BINARY), draw(TEXT), draw(TEXT), draw(TEXT), "correlation", symbol("type")]
    kept = draw(st.none() | st.integers(1, len(fields)))
    return None if kept is None else fields[:kept]


@st.composite
def messages(draw: st.DrawFn) -> MessageSections:
    """Every section there or not, values of every type."""
    message = MessageSections()
    if draw(st.booleans()):
        message.header = [True, ubyte(7), uint(60_000)]
    message.delivery_annotations = draw(maps)
    message.message_annotations = draw(maps)
    message.properties = draw(properties())
    message.application_properties = draw(application_properties)
    message.body_kind = draw(st.sampled_from((DATA, SEQUENCE, VALUE)))
    message.bodies = draw(_bodies(message.body_kind))
    message.footer = draw(maps)
    return message


def _bodies(kind: int) -> st.SearchStrategy[list[object]]:
    body: st.SearchStrategy[object] = values
    if kind == DATA:
        body = BINARY.map(lambda content: content)
    elif kind == SEQUENCE:
        body = st.lists(simple, max_size=3).map(lambda items: items)
    return st.lists(body, max_size=1 if kind == VALUE else 3)


def sections_apart(message: MessageSections) -> list[bytes]:
    """Each section by itself; those of the body stay together, since their order means something."""
    parts = [MessageSections() for _ in range(7)]
    parts[0].header = message.header
    parts[1].delivery_annotations = message.delivery_annotations
    parts[2].message_annotations = message.message_annotations
    parts[3].properties = message.properties
    parts[4].application_properties = message.application_properties
    parts[5].body_kind, parts[5].bodies = message.body_kind, message.bodies
    parts[6].footer = message.footer
    return [encode_message(part) for part in parts]
