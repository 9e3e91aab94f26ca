"""What messages of a backlog queue say, without any syphon."""

from tandembus.client import OutgoingMessage
from tandembus.pairing.payloads import to_backlog
from tandembus.pairing.syphon_messages import Delivery
from tandembus.pairing.syphon_reading import by_destination, read_deliveries, refused_alike
from tests.covers import covers


def delivery(path: str | None, body: bytes = b"shoes") -> Delivery:
    payload = OutgoingMessage(body).encode()
    return Delivery(payload if path is None else to_backlog(payload, path), None)


@covers("N12")
def test_messages_are_sorted_by_destination_in_their_order_whatever_its_spelling() -> None:
    deliveries = [delivery("orders", b"1"), delivery("bills", b"2"), delivery("Orders", b"3")]
    held, malformed = read_deliveries(deliveries, {})
    groups = by_destination(held)
    assert not malformed
    assert {key: [each.delivery for each in group] for key, group in groups.items()} == {
        "orders": [deliveries[0], deliveries[2]],
        "bills": [deliveries[1]],
    }


@covers("N12")
def test_malformed_messages_are_put_together_by_the_reason_of_their_dead_letters() -> None:
    lost, unreadable, good = delivery(None), Delivery(b"\x00\x53\x99", None), delivery("orders")
    held, malformed = read_deliveries([lost, unreadable, good], {})
    assert [each.delivery for each in held] == [good]
    assert {reason: some for (reason, _), some in malformed.items()} == {
        "NoPath": [lost],
        "MalformedMessage": [unreadable],
    }


@covers("N12")
def test_messages_that_were_refused_alike_become_dead_letters_together() -> None:
    held = read_deliveries([delivery("orders"), delivery("orders"), delivery("bills")], {}).held
    reasons = [("TooLarge", "1"), ("TooLarge", "1"), ("TooLarge", "2")]
    refused = [(each, *reason) for each, reason in zip(held, reasons, strict=True)]
    assert refused_alike(refused) == {("TooLarge", "1"): held[:2], ("TooLarge", "2"): held[2:]}
