"""The files of a session's episode: listed, read and written by requests."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from tropism.core.session.session import Session
from tropism.serve import errors
from tropism.serve.session.log import SessionLog
from tropism.serve.session.requests import EmptyRequest, FileRequest, UploadRequest, convert
from tropism.serve.storage.protocol import Entry, RequestKey
from tropism.wire.codec import encode


@runtime_checkable
class SessionWithFiles(Protocol):
    """A live session; `write_lock` orders a write and the timeout of a step."""

    session: Session
    log: SessionLog
    write_lock: Any


def list_files(live: SessionWithFiles, data: dict[str, Any]) -> bytes:
    convert(data, EmptyRequest)
    return encode({"files": live.session.files(), "step_count": live.session.step_count})


def read_file(live: SessionWithFiles, data: dict[str, Any]) -> bytes:
    path = convert(data, FileRequest).path
    content = live.session.read_file(path)
    return encode({"path": path, "data": content, "step_count": live.session.step_count})


def write_file(live: SessionWithFiles, data: dict[str, Any]) -> bytes:
    """Write a file and journal it, so that forks and a resumed session have it."""
    request, session = convert(data, UploadRequest), live.session
    payload = {"path": request.path, "data": b64encode(request.data).decode()}
    size = len(encode(payload))
    live.log.check_room(size)
    session.write_file(request.path, request.data)
    with live.write_lock:
        if session is not live.session:
            raise errors.late_step_error()
        live.log.append((Entry("upload", payload, None, False),), size=size)
    return encode({"path": request.path, "size": len(request.data), "step_count": session.step_count})


FILE_OPERATIONS: dict[str, Callable[[SessionWithFiles, dict[str, Any], RequestKey | None], bytes]] = {
    "files": lambda live, data, _: list_files(live, data),
    "read_file": lambda live, data, _: read_file(live, data),
    "write_file": lambda live, data, _: write_file(live, data),
}
READS = ("files", "read_file")  # performed again if their request is repeated
