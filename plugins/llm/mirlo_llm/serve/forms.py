"""Multipart forms, in which clients send files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mirlo_llm.serve.body import Message, Scope, header
from mirlo_llm.serve.errors import RequestError
from mirlo_llm.serve.threads import INLINE_BYTES, run_in_thread

MAX_FIELDS = 32


@dataclass(frozen=True)
class FormFields:
    """The text fields of a form, and the content of its file."""

    texts: dict[str, str]
    file: bytes | None
    file_key: str = "file"
    lists: dict[str, list[str]] = field(default_factory=dict)
    """The texts of repeatable fields, whose names end in `[]`."""


async def read_form(scope: Scope, body: bytes) -> FormFields:
    """Parse a form with at most one file."""
    if not (header(scope, b"content-type") or b"").lower().startswith(b"multipart/form-data"):
        raise RequestError(415, "Content-Type: expected multipart/form-data with a file")
    try:
        from starlette.datastructures import UploadFile
        from starlette.exceptions import HTTPException
        from starlette.requests import ClientDisconnect, Request

        __import__("python_multipart")
    except ImportError:
        raise RequestError(501, "forms with files need the package 'python-multipart' on the server") from None

    async def whole() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def parse() -> FormFields:
        texts, lists, content, name = dict[str, str](), dict[str, list[str]](), None, "file"
        form = await Request(scope, whole).form(max_files=1, max_fields=MAX_FIELDS, max_part_size=1 << 16)
        for key, value in form.multi_items():
            if isinstance(value, UploadFile):
                content, name = await value.read(), key
            elif key.endswith("[]"):
                lists.setdefault(key, []).append(value)
            else:
                texts[key] = value
        return FormFields(texts, content, name, lists)

    try:
        if len(body) <= INLINE_BYTES:
            return await parse()
        return await run_in_thread(len(body), lambda: asyncio.run(parse()))
    except (HTTPException, ClientDisconnect, ValueError) as error:
        raise RequestError(400, f"the body is no form: {str(getattr(error, 'detail', error))[:200]}") from None
