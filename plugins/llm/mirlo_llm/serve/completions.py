"""Chat and text completions of OpenAI's API, whole or in chunks."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirlo_llm.generate.logprobs import TokenLogprob
from mirlo_llm.generate.request import LENGTH
from mirlo_llm.serve.answer_reader import AnswerForm, AnswerReader, Part, ReadText, joined
from mirlo_llm.serve.call_forms import ToolCall
from mirlo_llm.serve.engine_thread import AnswerJob, Delivery
from mirlo_llm.serve.generation_body import GenerationBody

LEAST_LOGPROB = -9999.0
"""Replaces the logarithm of 0, which JSON cannot represent."""
_RUN, _NUMBERS = secrets.token_hex(8), itertools.count()
TokensText = Callable[[Sequence[int]], str]


@dataclass
class AnswerChoice:
    """The state of one answer."""

    reader: AnswerReader
    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: str | None = None
    calls: int = 0
    """Number of tool calls that were sent."""
    offset: int = 0
    """Number of characters of the tokens whose probabilities were sent."""


class CompletionWriter:
    """Writes the objects of an answer from the deliveries of a job."""

    def __init__(self, body: GenerationBody, job: AnswerJob, model: str, decode: TokensText, form: AnswerForm) -> None:
        """Store the job; `form` is the format of answers in a conversation."""
        self._body, self._job, self._decode = body, job, decode
        chat = body.is_chat
        self._prefix = {
            "id": new_name("chatcmpl" if chat else "cmpl"),
            "created": int(time.time()),
            "model": model,
        }
        self._choices = [AnswerChoice(AnswerReader(form)) for _ in job.requests]

    @property
    def is_done(self) -> bool:
        """Return whether all answers are complete."""
        return all(choice.reason is not None for choice in self._choices)

    @property
    def usage(self) -> dict[str, object]:
        """Return the numbers of tokens."""
        requests = self._job.requests
        prompts = requests[:: self._body.call.count]
        prompt = sum(len(request.prompt) for request in prompts)
        answer = sum(len(request.tokens) for request in requests)
        cached = sum(min(request.reused_tokens, len(request.prompt)) for request in prompts)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": max(0, cached)},
        }

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Add deliveries to a whole answer."""
        for delivery in deliveries:
            choice = self._choices[delivery.choice]
            choice.text.append(delivery.text)
            choice.logprobs += delivery.logprobs
            choice.reason = delivery.reason

    def whole(self) -> dict[str, object]:
        """Return the whole answer."""
        kind = "chat.completion" if self._body.is_chat else "text_completion"
        choices = [self._whole_choice(i, choice) for i, choice in enumerate(self._choices)]
        return {**self._prefix, "object": kind, "choices": choices, "usage": self.usage}

    def _whole_choice(self, i: int, choice: AnswerChoice) -> dict[str, object]:
        text, reason = "".join(choice.text), _finish(choice.reason)
        if not self._body.is_chat:
            logprobs = self._logprobs([*self._echoed_logprobs(i), *choice.logprobs], 0)
            result = {"index": i, "text": self._echo(i) + text, "logprobs": logprobs, "finish_reason": reason}
            return result | ({"prompt_logprobs": self._prompt_logprobs(i)} if self._body.has_prompt_logprobs else {})
        logprobs = self._logprobs(choice.logprobs, 0)
        parts = [*choice.reader.feed(text), *choice.reader.finish()]
        texts = [part for part in parts if isinstance(part, ReadText)]
        calls = [part for part in parts if isinstance(part, ToolCall)]
        content, reasoning = ("".join(x.text for x in texts if x.is_reasoning is each) for each in (False, True))
        message: dict[str, object] = {"role": "assistant", "content": content, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message |= {"content": content or None, "tool_calls": list(map(_call_object, calls))}
            reason = "tool_calls" if reason == "stop" else reason
        return {"index": i, "message": message, "logprobs": logprobs, "finish_reason": reason}

    def first(self) -> list[dict[str, object]]:
        """Return the first chunks of a stream."""
        places = range(len(self._choices))
        if self._body.is_chat:
            return [self._chunk(i, {"role": "assistant", "content": ""}, None, None) for i in places]
        if not self._body.echo:
            return []
        result = []
        for i, choice in enumerate(self._choices):
            choice.logprobs = self._echoed_logprobs(i)
            result.append(self._chunk(i, self._echo(i), self._taken_logprobs(choice), None))
        return result

    def chunks(self, deliveries: Sequence[Delivery]) -> list[dict[str, object]]:
        """Return the chunks for deliveries."""
        return [chunk for delivery in deliveries for chunk in self._chunks_of(delivery)]

    def last(self) -> list[dict[str, object]]:
        """Return the last chunks of a stream."""
        if not self._body.has_usage:
            return []
        kind = "chat.completion.chunk" if self._body.is_chat else "text_completion"
        return [{**self._prefix, "object": kind, "choices": [], "usage": self.usage}]

    def _chunks_of(self, delivery: Delivery) -> list[dict[str, object]]:
        i, choice, reason = delivery.choice, self._choices[delivery.choice], _finish(delivery.reason)
        choice.logprobs += delivery.logprobs
        choice.reason = delivery.reason
        if not self._body.is_chat:
            logprobs = self._taken_logprobs(choice)
            is_empty = not (delivery.text or logprobs or reason)
            return [] if is_empty else [self._chunk(i, delivery.text, logprobs, reason)]
        parts = choice.reader.feed(delivery.text)
        parts = joined([*parts, *choice.reader.finish()] if reason is not None else parts)
        deltas = [self._delta(choice, part) for part in parts]
        if not deltas and choice.logprobs and (reason is not None or not choice.reader.is_waiting):
            deltas.append({"content": ""})
        chunks = []
        for delta in deltas:
            chunks.append(self._chunk(i, delta, self._taken_logprobs(choice), None))
        if reason is not None:
            is_call = choice.reader.has_calls and reason == "stop"
            chunks.append(self._chunk(i, {}, None, "tool_calls" if is_call else reason))
        return chunks

    def _taken_logprobs(self, choice: AnswerChoice) -> dict[str, object] | None:
        """Return the probabilities that were not sent yet; text parsed from several tokens has those of all."""
        result = self._logprobs(choice.logprobs, choice.offset)
        if not self._body.is_chat:
            choice.offset += sum(len(self._token_text(each.token)) for each in choice.logprobs)
        choice.logprobs = []
        return result

    @staticmethod
    def _delta(choice: AnswerChoice, part: Part) -> dict[str, object]:
        if isinstance(part, ReadText):
            return {"reasoning_content" if part.is_reasoning else "content": part.text}
        choice.calls += 1
        return {"tool_calls": [{"index": choice.calls - 1, **_call_object(part)}]}

    def _chunk(self, i: int, content: object, logprobs: object, reason: str | None) -> dict[str, object]:
        chat = self._body.is_chat
        choice = {"index": i, "delta" if chat else "text": content, "logprobs": logprobs, "finish_reason": reason}
        kind = "chat.completion.chunk" if chat else "text_completion"
        usage = {"usage": None} if self._body.has_usage else {}
        return {**self._prefix, "object": kind, "choices": [choice], **usage}

    def _echo(self, i: int) -> str:
        """Return the text of the prompt, if answers must repeat it."""
        if not self._body.echo:
            return ""
        prompt = self._body.call.prompts[i // self._body.call.count]
        return prompt if isinstance(prompt, str) else self._decode(prompt)

    def _echoed_logprobs(self, i: int) -> list[TokenLogprob]:
        """Return the probabilities of prompt tokens, if answers must repeat the prompt; the first has none."""
        if not self._body.echo or self._body.call.logprobs is None:
            return []
        request = self._job.requests[i]
        pairs = zip(request.prompt, request.prompt_logprobs, strict=True)
        return [TokenLogprob(token, None, ()) if each is None else each for token, each in pairs]

    def _prompt_logprobs(self, i: int) -> list[dict[str, object] | None]:
        """Return the probabilities of prompt tokens in vLLM's format."""

        def entry(token: int, logprob: float) -> dict[str, object]:
            return {"logprob": _finite(logprob), "decoded_token": self._token_text(token)}

        return [
            None if each is None or each.logprob is None
            else {str(token): entry(token, logprob) for token, logprob in ((each.token, each.logprob), *each.top)}
            for each in self._job.requests[i].prompt_logprobs
        ]  # fmt: skip

    def _token_text(self, token: int) -> str:
        return self._decode([token])

    def _logprobs(self, logprobs: Sequence[TokenLogprob], offset: int) -> dict[str, object] | None:
        if self._body.call.logprobs is None or not logprobs and self._body.call.is_streamed:
            return None
        if self._body.is_chat:
            return {"content": [self._chat_logprob(each) for each in logprobs], "refusal": None}
        texts = [self._token_text(each.token) for each in logprobs]
        offsets = [offset + sum(map(len, texts[:k])) for k in range(len(texts))]
        return {
            "tokens": texts,
            "token_logprobs": [None if each.logprob is None else _finite(each.logprob) for each in logprobs],
            "top_logprobs": [self._top_of(each) for each in logprobs],
            "text_offset": offsets,
        }

    def _top_of(self, each: TokenLogprob) -> dict[str, float] | None:
        """Return the most probable alternatives of a token; None for the first token of a prompt."""
        if each.logprob is None:
            return None
        return {self._token_text(token): _finite(p) for token, p in each.top[: self._body.call.logprobs]}

    def _chat_logprob(self, token_logprob: TokenLogprob) -> dict[str, object]:
        top = [self._alternative(token, logprob) for token, logprob in token_logprob.top]
        assert token_logprob.logprob is not None  # conversations show tokens of answers only
        return {**self._alternative(token_logprob.token, token_logprob.logprob), "top_logprobs": top}

    def _alternative(self, token: int, logprob: float) -> dict[str, object]:
        text = self._token_text(token)
        # A token may be a part of a character, whose bytes its text does not show.
        content = None if "\ufffd" in text else list(text.encode("utf-8"))
        return {"token": text, "logprob": _finite(logprob), "bytes": content}


def new_name(kind: str) -> str:
    """Return a unique name of an answer, without requesting random bytes from the system each time."""
    return f"{kind}-{_RUN}{next(_NUMBERS):012x}"


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)


def _finish(reason: str | None) -> str | None:
    return None if reason is None else "length" if reason == LENGTH else "stop"


def _call_object(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": new_name("call"), "type": "function", "function": function}
