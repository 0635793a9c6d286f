"""A load generator for WebSocket servers: raw sockets, frames encoded in advance, one request in flight per session."""

import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(text: str) -> bytes:
    """A client's text frame, with a zero mask so that the payload is unchanged."""
    payload = text.encode()
    size = len(payload)
    head = bytes([0x81, 0x80 | size]) if size < 126 else bytes([0x81, 0x80 | 126]) + struct.pack("!H", size)
    return head + bytes(4) + payload


def frame_end(data: bytes | bytearray) -> int | None:
    """The end offset of the first server frame; None if it is incomplete."""
    if len(data) < 2:
        return None
    size, start = data[1] & 0x7F, 2
    if size == 126:
        if len(data) < 4:
            return None
        size, start = int.from_bytes(data[2:4], "big"), 4
    elif size == 127:
        if len(data) < 10:
            return None
        size, start = int.from_bytes(data[2:10], "big"), 10
    return start + size if len(data) >= start + size else None


@dataclass
class Session:
    """One socket with a running episode."""

    socket: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    sent: float = 0.0  # when the last request was sent

    def receive(self) -> bytes | None:
        """Read from the socket; the frame of a reply if it is complete, otherwise None."""
        self.waiting += self.socket.recv(1 << 16)
        end = frame_end(self.waiting)
        if end is None:
            return None
        reply, self.waiting = bytes(self.waiting[:end]), self.waiting[end:]
        return reply

    def exchange(self, data: bytes) -> bytes:
        self.socket.sendall(data)
        while (reply := self.receive()) is None:
            continue
        return reply


def open_session(port: int, path: str) -> Session:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(HANDSHAKE.format(path=path, port=port).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(4096)
    if b" 101 " not in head.split(b"\r\n")[0]:
        raise ConnectionError(head.decode(errors="replace"))
    session = Session(connection)
    reply = session.exchange(frame('{"type":"reset","data":{}}'))
    if b'"observation"' not in reply:
        raise ConnectionError(reply.decode(errors="replace"))
    return session


def drive(
    sessions: list[Session], data: bytes, expected: bytes, seconds: float, latencies: list[float] | None = None
) -> tuple[int, float]:
    """Step every session as fast as replies arrive; return `(steps, seconds)`. A wrong reply is an error.

    The time from each request to its reply is appended to `latencies`.
    """
    poll = select.epoll()
    table = {session.socket.fileno(): session for session in sessions}
    for number in table:
        poll.register(number, select.EPOLLIN)
    steps, start = 0, time.perf_counter()
    deadline, pending = start + seconds, len(sessions)
    for session in sessions:
        session.sent = time.perf_counter()
        session.socket.sendall(data)
    while pending:
        for number, _ in poll.poll():
            session = table[number]
            reply = session.receive()
            if reply is None:
                continue
            if expected not in reply:
                raise ConnectionError(reply.decode(errors="replace"))
            steps += 1
            now = time.perf_counter()
            if latencies is not None:
                latencies.append(now - session.sent)
            if now < deadline:
                session.sent = now
                session.socket.sendall(data)
            else:
                pending -= 1
    poll.close()
    return steps, time.perf_counter() - start


def cpu_seconds(process: int) -> float:
    """User and system time used by a process."""
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(process: int) -> int:
    with open(f"/proc/{process}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/task"))
