"""The command line against a running namespace, as scripts use it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.covers import covers
from tests.integration.command_line import STOPS_WITHIN_S, Run, lines, listen_to_ctrl_c, received
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import ONE_PROCESS, Shape, on_every_shape

pytestmark = on_every_shape


@pytest.fixture
def queue(run: Run) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("queue", "create", name)
    yield name
    run("queue", "delete", name, "--yes")


class TestQueues:
    def test_every_setting_can_be_chosen(self, run: Run) -> None:
        name = f"cli-{uuid.uuid4().hex[:12]}"
        options = ["--lock-duration", "30s", "--max-size-mb", "2048", "--default-ttl", "14d"]
        options += ["--dead-lettering-on-expiration", "--max-delivery-count", "3", "--auto-delete-on-idle", "1h"]
        options += ["--user-metadata", "mine", "--status", "SendDisabled", "--no-batched-operations"]
        (made,) = lines(run("queue", "create", name, "--json", *options))
        assert made["name"] == name
        assert (made["lock_duration_s"], made["max_size_mb"], made["default_time_to_live_s"]) == (30, 2048, 1209600)
        assert (made["dead_lettering_on_expiration"], made["max_delivery_count"]) == (True, 3)
        assert (made["auto_delete_on_idle_s"], made["user_metadata"], made["status"]) == (3600, "mine", "SendDisabled")
        (changed,) = lines(run("queue", "update", name, "--json", "--status", "active", "--user-metadata", ""))
        assert (changed["status"], changed["user_metadata"], changed["lock_duration_s"]) == ("Active", None, 30)
        (shown,) = lines(run("queue", "show", name, "--json"))
        assert shown["counts"]["active"] == 0
        assert name in [each["name"] for each in lines(run("queue", "list", "--json"))]
        assert lines(run("queue", "delete", name, "--json")) == [{"queue": name, "deleted": True}]
        run("queue", "show", name, exit_code=3)

    @covers("P2", "P9")
    @pytest.mark.parametrize("kind", ["queue", "topic"])
    def test_partitioning_that_spreads_nothing_is_told(self, run: Run, shape: Shape, kind: str) -> None:
        name = f"cli-{uuid.uuid4().hex[:12]}"
        made = run(kind, "create", name, "--enable-partitioning", "--json")
        assert [each["name"] for each in lines(made)] == [name], "the note is not in the way of programs"
        plain = run(kind, "create", f"{name}-plain")
        for created in (name, f"{name}-plain"):
            run(kind, "delete", created, "--yes")
        if shape.topology is ONE_PROCESS:
            assert f"All fragments of '{name}' lie in one messaging store" in made.stderr
            assert "--brokers N or --stores N" in made.stderr
        else:
            assert made.stderr == ""
        assert plain.stderr == ""

    def test_people_get_tables(self, run: Run, queue: str) -> None:
        assert "lock duration" in run("queue", "show", queue).stdout
        listed = run("queue", "list").stdout
        assert "dead-letter" in listed
        assert queue[:10] in listed

    def test_mistakes_have_exit_codes(self, run: Run, queue: str) -> None:
        assert "queue update" in run("queue", "create", queue, exit_code=6).stderr
        run("queue", "update", "nowhere", "--max-delivery-count", "3", exit_code=3)
        run("queue", "delete", "nowhere", exit_code=3)
        run("queue", "purge", "nowhere", exit_code=3)
        run("queue", "create", "other", "--lock-duration", "1h", exit_code=1)

    def test_purge_empties_a_queue_or_its_dead_letters(self, run: Run, queue: str) -> None:
        run("send", queue, "x", "--count", "30")
        received(run, queue, "--dead-letter", "--max", "10")
        purged = lines(run("queue", "purge", queue, "--json"))
        assert purged == [{"queue": queue, "sub_queue": None, "purged": 20}]
        assert "purged 10 messages" in run("queue", "purge", queue, "--sub-queue", "dead-letter").stdout
        (shown,) = lines(run("queue", "show", queue, "--json"))
        assert (shown["counts"]["active"], shown["counts"]["dead_letter"]) == (0, 0)


class TestSending:
    def test_a_body_comes_from_argument_input_or_file(self, run: Run, queue: str, tmp_path: Path) -> None:
        (tmp_path / "body.bin").write_bytes(b"\xff\x00")
        run("send", queue, "argument")
        run("send", queue, stdin="piped")
        run("send", queue, "-", stdin="dash")
        run("send", queue, "--file", "body.bin")
        run("send", queue, "--lines", stdin="one\ntwo\n")
        messages = received(run, queue)
        assert [each["body"] for each in messages] == ["argument", "piped", "dash", None, "one", "two"]
        assert messages[3]["body_base64"] == "/wA="

    def test_everything_about_a_message_can_be_said(self, run: Run, queue: str) -> None:
        options = ["--message-id", "id-1", "--subject", "s", "--content-type", "text/plain", "--correlation-id", "c"]
        options += ["--partition-key", "p", "--to", "t", "--reply-to", "r", "--ttl", "10m"]
        options += ["--property", "n:int=5", "--property", "text=a=b"]
        run("send", queue, "x", *options)
        (message,) = received(run, queue)
        assert (message["message_id"], message["subject"], message["content_type"]) == ("id-1", "s", "text/plain")
        assert (message["correlation_id"], message["partition_key"]) == ("c", "p")
        assert (message["to"], message["reply_to"], message["time_to_live_s"]) == ("t", "r", 600)
        assert message["properties"] == {"n": 5, "text": "a=b"}

    def test_many_messages_one_by_one_or_in_batches(self, run: Run, queue: str) -> None:
        answer = lines(run("send", queue, "x", "--count", "50", "--message-id", "m", "--window", "7", "--json"))
        assert answer[0]["sent"] == 50
        assert answer[0]["sequence_numbers"] is None
        assert "sent 100 messages" in run("send", queue, "y", "--count", "100", "--batch", "30").stdout
        messages = [*received(run, queue), *received(run, queue)]
        assert [each["message_id"] for each in messages[:50]] == [f"m-{number}" for number in range(1, 51)]
        assert [each["body"] for each in messages] == ["x"] * 50 + ["y"] * 100

    @covers("M5")
    def test_a_scheduled_message_gets_a_number(self, run: Run, queue: str) -> None:
        (answer,) = lines(run("send", queue, "later", "--schedule", "1h", "--count", "3", "--json"))
        assert len(answer["sequence_numbers"]) == 3
        peeked = lines(run("peek", queue, "--json"))
        assert [each["sequence_number"] for each in peeked] == answer["sequence_numbers"]
        assert {each["state"] for each in peeked} == {"scheduled"}

    def test_a_message_that_is_too_large_is_refused_with_advice(self, run: Run, queue: str) -> None:
        result = run("send", queue, exit_code=1, stdin=b"x" * 300_000)
        assert re.search(r"has 300\d\d\d bytes; .* takes 262144", result.stderr), result.stderr
        assert "smaller" in result.stderr

    def test_a_refusal_half_way_says_how_many_were_accepted(self, run: Run, queue: str) -> None:
        bodies = b"small\n" + b"x" * 300_000 + b"\nsmall\n"
        result = run("send", queue, "--lines", "--json", exit_code=1, stdin=bodies)
        assert result.stdout == ""
        assert json.loads(result.stderr)["error"]["accepted"] in (0, 1, 2)
        told = run("send", queue, "--lines", "--window", "1", exit_code=1, stdin=bodies).stderr
        assert "At least 1 of 3 messages were accepted." in told

    def test_an_interruption_says_how_many_were_accepted(
        self, run: Run, running_namespace: RunningNamespace, queue: str
    ) -> None:
        command = [sys.executable, "-m", "tandembus", "send", queue, "x", "--count", "10000000", "--json"]
        command += ["--connection-string", running_namespace.connection_string]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            preexec_fn=listen_to_ctrl_c,
        ) as sending:
            while not lines(run("peek", queue, "--max", "1", "--json")):
                assert sending.poll() is None
            sending.send_signal(signal.SIGINT)
            output, errors = sending.communicate(timeout=STOPS_WITHIN_S)
        assert (sending.returncode, output) == (130, "")
        error = json.loads(errors)["error"]
        stored = lines(run("queue", "show", queue, "--json"))[0]["counts"]["active"]
        assert error["kind"] == "Interrupted"
        assert error["accepted"] <= stored


class TestReceiving:
    def test_what_was_received_is_gone_unless_told_otherwise(self, run: Run, queue: str) -> None:
        run("send", queue, "--lines", stdin="a\nb\nc\nd\ne\n")
        run("receive", queue)
        run("receive", queue, "--abandon")
        run("receive", queue, "--defer")
        run("receive", queue, "--dead-letter", "--reason", "why", "--description", "because")
        run("receive", queue, "--mode", "receive-and-delete")
        peeked = {each["body"]: each["state"] for each in lines(run("peek", queue, "--json"))}
        assert peeked == {"b": "deferred", "e": "active"}
        (dead,) = lines(run("deadletter", "list", queue, "--json"))
        assert (dead["body"], dead["dead_letter_reason"], dead["dead_letter_description"]) == ("c", "why", "because")

    def test_what_is_given_back_is_not_received_again(self, run: Run, queue: str) -> None:
        run("send", queue, "x", "--count", "150")
        again = lines(run("receive", queue, "--abandon", "--max", "1000", "--wait", "200ms", "--json"))
        numbers = [each["sequence_number"] for each in again]
        assert len(numbers) == len(set(numbers)) >= 100
        assert max(each["delivery_count"] for each in lines(run("peek", queue, "--max", "150", "--json"))) <= 2

    def test_numbers_that_json_does_not_know_are_texts(self, run: Run, queue: str) -> None:
        run("send", queue, "x", "--property", "d:double=nan")
        assert received(run, queue)[0]["properties"] == {"d": "NaN"}

    def test_control_characters_are_shown_not_sent(self, run: Run, queue: str) -> None:
        run("send", queue, "\x1b[2J", "--message-id", "\x1b[1m", "--property", "p=\x1b[3m")
        for command in (["peek", queue], ["peek", queue, "--full"], ["receive", queue, "--dead-letter"]):
            assert "\\x1b[2J" in run(*command).stdout
        shown = run("deadletter", "list", queue).stdout
        assert "\x1b" not in shown
        assert "\\x1b[1m" in shown

    def test_an_empty_queue_is_no_failure(self, run: Run, queue: str) -> None:
        assert "no messages" in run("receive", queue, "--wait", "50ms").stdout
        assert run("receive", queue, "--wait", "50ms", "--json").stdout == ""

    def test_peek_starts_where_it_is_told_and_takes_nothing(self, run: Run, queue: str) -> None:
        run("send", queue, "--lines", stdin="a\nb\nc\n")
        numbers = [each["sequence_number"] for each in lines(run("peek", queue, "--json"))]
        (one,) = lines(run("peek", queue, "--from", str(numbers[1]), "--max", "1", "--json"))
        assert one["body"] == "b"
        assert "deliveries" in run("peek", queue).stdout
        assert "a\n" in run("peek", queue, "--full").stdout
        assert len(received(run, queue)) == 3

    @pytest.mark.parametrize("command", ["send", "receive", "peek"])
    def test_an_unknown_queue_is_not_found(self, run: Run, command: str) -> None:
        run(command, "nowhere", *(["x"] if command == "send" else []), exit_code=3)

    def test_a_wrong_key_is_not_authorized(self, run: Run, running_namespace: RunningNamespace, queue: str) -> None:
        wrong = running_namespace.connection_string.replace(running_namespace.key, "wrong")
        run("send", queue, "x", "--connection-string", wrong, exit_code=4)
        run("queue", "list", "--connection-string", wrong, exit_code=4)

    def test_tls_needs_the_authority_of_the_namespace(
        self, run: Run, running_namespace: RunningNamespace, queue: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        tls = running_namespace.connection_string.replace(";UseDevelopmentEmulator=true", "")
        assert "--ca" in run("peek", queue, "--connection-string", tls, exit_code=5).stderr
        assert "--ca" in run("queue", "list", "--connection-string", tls, exit_code=5).stderr
        run("peek", queue, "--connection-string", tls, "--ca", str(running_namespace.ca_path))
        run("queue", "list", "--connection-string", tls, "--ca", str(running_namespace.ca_path))

    def test_following_ends_quietly_with_ctrl_c(
        self, run: Run, running_namespace: RunningNamespace, queue: str
    ) -> None:
        command = [sys.executable, "-m", "tandembus", "receive", queue, "--follow", "--json"]
        command += ["--connection-string", running_namespace.connection_string]
        root = Path(__file__).parents[2]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=root,
            preexec_fn=listen_to_ctrl_c,
        ) as follower:
            assert follower.stdout is not None
            for body in ("first", "second"):
                run("send", queue, body)
                assert json.loads(follower.stdout.readline())["body"] == body
            follower.send_signal(signal.SIGINT)
            _, errors = follower.communicate(timeout=STOPS_WITHIN_S)
        assert (follower.returncode, errors) == (130, "")


@covers("M3")
class TestDeadLetters:
    def test_resubmitted_messages_are_what_they_were(self, run: Run, queue: str) -> None:
        run("send", queue, "x", "--count", "250", "--message-id", "m", "--property", "n:int=5", "--subject", "s")
        received(run, queue, "--dead-letter", "--reason", "why", "--max", "250")
        assert "why" in run("deadletter", "list", queue).stdout
        assert len(lines(run("deadletter", "list", queue, "--max", "1000", "--json"))) == 250
        first = lines(run("deadletter", "resubmit", queue, "--max", "50", "--json"))
        assert first == [{"entity": queue, "to": queue, "resubmitted": 50, "refused": 0}]
        assert "resubmitted 200 messages" in run("deadletter", "resubmit", queue).stdout
        assert "no dead letters" in run("deadletter", "list", queue).stdout
        messages = received(run, queue, "--max", "250")
        assert sorted(each["message_id"] for each in messages) == sorted(f"m-{number}" for number in range(1, 251))
        assert {(each["subject"], each["delivery_count"]) for each in messages} == {("s", 0)}
        assert all(each["properties"] == {"n": 5} for each in messages)

    def test_what_the_queue_refuses_stays_in_the_dead_letter_queue(self, run: Run, queue: str) -> None:
        run("send", queue, "x", "--count", "5")
        received(run, queue, "--dead-letter")
        run("queue", "update", queue, "--status", "SendDisabled")
        run("deadletter", "resubmit", queue, exit_code=7)
        run("queue", "update", queue, "--status", "Active")
        assert len(lines(run("deadletter", "list", queue, "--json"))) == 5


def test_the_data_folder_is_enough_to_find_a_namespace(run: Run, running_namespace: RunningNamespace) -> None:
    data = str(running_namespace.data)
    (facts,) = lines(run("ca", "--data", data, "--json"))
    assert facts["ca_path"] == str(running_namespace.ca_path)
