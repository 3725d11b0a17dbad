from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipetune.hook.channel import Channel, ChannelClosedError
from pipetune.measure.script.protocol import SOCKET


class Listener:
    """The parent's end."""

    def __init__(self, folder: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(folder / SOCKET))
        self.socket.listen(8)
        self.socket.settimeout(30)
        self.accepted: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """Another connection, and the lines that come by it."""
        connection, _ = self.socket.accept()
        connection.settimeout(30)
        self.accepted.append(connection)
        return connection, connection.makefile("rb")

    def close(self) -> None:
        for one in (self.socket, *self.accepted):
            one.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path)
    yield made
    made.close()


def line(file: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(file.readline())
    return read


def descriptor(channel: Channel) -> int:
    assert channel._socket is not None
    return channel._socket.fileno()


def test_it_says_who_it_is_before_the_first_message(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "")
    monkeypatch.setenv("LOCAL_RANK", "none")
    channel = Channel(str(tmp_path))
    channel.send("torch", answer=42)
    channel.send("loader")
    _, file = listener.accept()
    hello = line(file)
    assert (hello["type"], hello["pid"], hello["ranks"]) == ("hello", os.getpid(), {"RANK": 3})
    assert [line(file), line(file)] == [{"type": "torch", "answer": 42}, {"type": "loader"}]


def test_it_connects_only_when_there_is_something_to_send(tmp_path: Path, listener: Listener) -> None:
    Channel(str(tmp_path))
    listener.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.socket.accept()


def test_messages_come_whole_and_one_by_one_however_they_arrive(tmp_path: Path, listener: Listener) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    connection, _ = listener.accept()
    connection.sendall(b'{"type": "measure", "text": "')
    assert channel.poll() is None  # half a line
    connection.sendall('é"}\n{"type": "stop"}\n{"type": "end"}\n{"ty'.encode())
    assert channel.receive() == {"type": "measure", "text": "é"}
    assert channel.poll() == {"type": "stop"}
    assert channel.receive() == {"type": "end"}
    assert channel.poll() is None
    connection.sendall(b'pe": "more"}\n')
    assert channel.receive() == {"type": "more"}


def test_a_line_longer_than_one_reading_comes_whole(tmp_path: Path, listener: Listener) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    connection, _ = listener.accept()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    connection.sendall(json.dumps({"type": "measure", "text": "x" * 150_000}).encode() + b"\n")
    assert len(channel.receive()["text"]) == 150_000


@pytest.mark.parametrize("what", ["send", "receive", "poll"])
def test_nobody_there_is_an_error_of_its_own(what: str, tmp_path: Path) -> None:
    channel = Channel(str(tmp_path))
    with pytest.raises(ChannelClosedError):
        getattr(channel, what)(*(["torch"] if what == "send" else []))


@pytest.mark.parametrize("what", ["receive", "poll"])
def test_a_parent_that_has_gone_is_the_same_error(what: str, tmp_path: Path, listener: Listener) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    connection, file = listener.accept()
    file.close()  # which holds the connection, too
    connection.close()
    with pytest.raises(ChannelClosedError):
        getattr(channel, what)()


def test_after_the_script_has_closed_all_descriptors_it_connects_again(tmp_path: Path, listener: Listener) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    listener.accept()
    os.close(descriptor(channel))
    channel.send("loader")
    _, file = listener.accept()
    assert [line(file)["type"], line(file)["type"]] == ["hello", "loader"]


def test_where_its_number_is_another_file_now_that_file_is_left_alone(tmp_path: Path, listener: Listener) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    listener.accept()
    number = descriptor(channel)
    place = tmp_path / "checkpoint"
    with place.open("wb") as file:
        os.dup2(file.fileno(), number)
        channel.send("loader")
        assert os.fstat(number).st_ino == place.stat().st_ino  # nor is it closed
        os.close(number)
    _, lines = listener.accept()
    assert [line(lines)["type"], line(lines)["type"]] == ["hello", "loader"]
    assert place.read_bytes() == b""


def test_what_had_arrived_by_a_connection_that_was_closed_is_not_mixed_with_another(
    tmp_path: Path, listener: Listener
) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    connection, _ = listener.accept()
    connection.sendall(b'{"type": "st')
    assert channel.poll() is None
    os.close(descriptor(channel))
    channel.send("loader")
    connection, _ = listener.accept()
    connection.sendall(b'{"type": "end"}\n')
    assert channel.receive() == {"type": "end"}


def test_a_forked_child_does_not_speak_for_its_parent(tmp_path: Path, listener: Listener) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    _, of_parent = listener.accept()
    pid = os.fork()
    if pid == 0:
        try:
            channel.send("loader")
        finally:
            os._exit(0)
    _, of_child = listener.accept()
    assert line(of_child)["pid"] == pid
    assert line(of_child) == {"type": "loader"}
    assert os.waitpid(pid, 0)[1] == 0
    channel.send("ready")
    assert [line(of_parent)["type"] for _ in range(3)] == ["hello", "torch", "ready"]


def test_a_child_that_says_nothing_takes_nothing_from_its_parent(tmp_path: Path, listener: Listener) -> None:
    channel = Channel(str(tmp_path))
    channel.send("torch")
    connection, _ = listener.accept()
    connection.sendall(b'{"type": "measure"}\n')
    pid = os.fork()
    if pid == 0:
        os._exit(0 if channel._socket is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert channel.receive() == {"type": "measure"}
