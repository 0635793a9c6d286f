"""The files of a session's episode: listed, read and written by requests."""

from base64 import b64encode
from typing import Any

from tropism.serve.session.recovery import RecoverableSession
from tropism.serve.session.requests import EmptyRequest, FileRequest, UploadRequest, convert
from tropism.serve.storage.protocol import Entry, RequestKey
from tropism.wire.codec import encode


def list_files(live: RecoverableSession, data: dict[str, Any], _: RequestKey | None) -> bytes:
    convert(data, EmptyRequest)
    return encode({"files": live.session.files(), "step_count": live.session.step_count})


def read_file(live: RecoverableSession, data: dict[str, Any], _: RequestKey | None) -> bytes:
    path = convert(data, FileRequest).path
    content = live.session.read_file(path)
    return encode({"path": path, "data": content, "step_count": live.session.step_count})


def write_file(live: RecoverableSession, data: dict[str, Any], _: RequestKey | None) -> bytes:
    """Write a file and journal it, so that forks and a resumed session have it."""
    request, session = convert(data, UploadRequest), live.session
    payload = {"path": request.path, "data": b64encode(request.data).decode()}
    size = len(encode(payload))
    live.log.check_room(size)
    session.write_file(request.path, request.data)
    with live.hold_write_lock(session):
        live.log.append((Entry("upload", payload, None, False),), size=size)
    return encode({"path": request.path, "size": len(request.data), "step_count": session.step_count})


FILE_OPERATIONS = {"files": list_files, "read_file": read_file, "write_file": write_file}
READS = ("files", "read_file")  # performed again if their request is repeated
