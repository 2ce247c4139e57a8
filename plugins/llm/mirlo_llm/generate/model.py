"""A language model from a folder: compiled, with its tokenizer and its chat template."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo import compile as compile_model
from mirlo.extend.compilation import OPTIONS
from mirlo.extend.frontend import default_inputs, has_pages, page_dims
from mirlo.extend.options import FRAMEWORKS, refuse_unknown
from mirlo.extend.ranks import require_place
from mirlo.extend.runtime import Executable
from mirlo_llm.caches.cache_arrays import ALL
from mirlo_llm.generate.adapted_modules import adapted_modules, adapter_inputs, for_decoder, with_one_rank
from mirlo_llm.generate.adapters import AdapterFiles, read_adapters
from mirlo_llm.generate.chat import ChatTemplate, Message, gguf_template, read_template
from mirlo_llm.generate.checkpoints.deferred import deferred_graph
from mirlo_llm.generate.checkpoints.safetensors import checkpoint_files
from mirlo_llm.generate.code_options import DEFAULT, CodeOptions
from mirlo_llm.generate.config import ModelConfig, read_config
from mirlo_llm.generate.decoder import CompiledDecoder
from mirlo_llm.generate.engine import ServingEngine
from mirlo_llm.generate.errors import GenerationError, require_executable
from mirlo_llm.generate.generator import Generator
from mirlo_llm.generate.guidance import FORMS, Grammar
from mirlo_llm.generate.json_file import is_count, read_json
from mirlo_llm.generate.led_caches import CacheOperation, SendOperation, follow
from mirlo_llm.generate.paged import DEFAULT_ROWS, PagedDecoder
from mirlo_llm.generate.perplexity import Perplexity, measure_perplexity, split_windows, window_logits
from mirlo_llm.generate.prefixes import DEFAULT_BYTES, PrefixCache
from mirlo_llm.generate.prompt import Prompt, encode_prompt, stop_texts
from mirlo_llm.generate.search import SearchOptions, with_options
from mirlo_llm.generate.tokenizer import FILE, ModelTokenizer, read_tokenizer
from mirlo_llm.generate.traced.sources import is_traced, traced_sources
from mirlo_llm.generate.vision.decoder import ImageDecoder
from mirlo_llm.generate.vision.images import ImageSource
from mirlo_llm.generate.vision.model import ImagePrompts, take_images
from mirlo_llm.generate.vision.tokens import ImageTokens

if TYPE_CHECKING:
    from mirlo.extend.frontend import ImportedModule


class LanguageModel:
    """A compiled language model; `generator` starts sequences."""

    def __init__(
        self,
        config: ModelConfig,
        executable: Executable,
        adapters: AdapterFiles | None = None,
        prefix_bytes: int | None = None,
        pages: int | None = None,
        compile_images: Callable[[], Executable] | None = None,
    ) -> None:
        """Store the model; `compile_images` compiles the image encoder, if the model takes images."""
        self.executable, self._compile_images = executable, compile_images
        self._decoder = _decoder_of(config, executable, adapters, prefix_bytes, pages)
        self.config = self._decoder.config

    @property
    def prefixes(self) -> PrefixCache:
        """Return the cached rows of common prefixes, which sequences reuse."""
        return self._decoder.prefixes

    @property
    def first_adapter(self) -> str | None:
        """Return the first adapter if the model requires one, otherwise None."""
        return self._decoder.first_adapter

    @property
    def deviations(self) -> list[str]:
        """Return what `activations="auto"` chose, and the errors that options of the compilation permit."""
        metadata = self.executable.artifact.metadata
        chosen = metadata.get("activations")
        return [
            *([] if chosen is None else [f"activations: {', '.join(chosen)}"]),
            *(f"approximated by {each}" for each in metadata.get("approximations", ())),
        ]

    @cached_property
    def tokenizer(self) -> ModelTokenizer | None:
        """Return the tokenizer of the folder or the file; None if it has none."""
        files = read_tokenizer(self.config)
        return None if files is None else ModelTokenizer(*files)

    @cached_property
    def template(self) -> ChatTemplate | None:
        """Return the chat template of the folder or the file; None if it has none."""
        config = self.config
        return read_template(config.folder) if config.gguf is None else gguf_template(config.model, config.gguf)

    @cached_property
    def image_encoder(self) -> Executable:
        """Return the compiled encoder of images."""
        self._require_images()
        assert self._compile_images is not None  # a model that takes images has one
        return self._compile_images()

    @cached_property
    def _image_prompts(self) -> ImagePrompts:
        images = self._require_images()
        if self.tokenizer is None:
            raise GenerationError(f"{self._place}: there is no {self._missing}, which prompts with images need")
        return ImagePrompts(self.config, images, self.tokenizer, lambda: self.image_encoder)

    def _require_images(self) -> ImageTokens:
        if not isinstance(self._decoder, ImageDecoder):
            raise GenerationError(f"{self._place}: the model takes no images")
        return self._decoder.images

    def cache_bytes(self, sequences: int, tokens: int) -> int:
        """Return the bytes of the caches of this many sequences of this many tokens."""
        return self._decoder.cache_bytes(sequences, tokens)

    def generator(
        self,
        batch: int = 1,
        stop: Sequence[str] | str = (),
        *,
        json_schema: Mapping[str, object] | str | None = None,
        regex: str | None = None,
        lark: str | None = None,
        grammar: str | None = None,
        draft: LanguageModel | None = None,
        adapter: str | None = None,
        **search: object,
    ) -> Generator:
        """Return a generator without tokens.

        `search` are changes to the search options of the folder. `stop` are texts that end a sequence: they and what
        follows are not part of the streamed text. `json_schema`, `regex`, `lark` or `grammar` (in GBNF or Lark) is the
        form that each answer has: what follows a prompt. `draft` is a smaller model with the same tokens that guesses
        what follows: the chosen tokens stay the same, and right guesses save steps. `adapter` is the name of one that
        was loaded.
        """
        options = self._search_options(search)
        form = self._grammar(dict(zip(FORMS, (json_schema, regex, lark, grammar), strict=True)))
        decoder = self._decoder.with_adapter(adapter)
        return Generator(decoder, options, self.tokenizer, batch, stop_texts(stop), form, self._drafting(draft))

    def engine(
        self,
        slots: int = 8,
        lead: SendOperation | None = None,
        *,
        draft: LanguageModel | None = None,
        **search: object,
    ) -> ServingEngine:
        """Return an engine that runs up to `slots` requests at a time: continuous batching.

        `search` are changes to the search options of the folder, which requests may change again. `draft` is a smaller
        model with the same tokens that guesses what follows, as for a generator. If the model is on several ranks, one
        rank has an engine with `lead`, which sends each operation to the others; they call `follow`.
        """
        options = with_options(self.config.search, search) if lead else self._search_options(search)
        drafting = self._drafting(draft)
        return ServingEngine(self._decoder, options, self.tokenizer, slots, self._grammar, lead, drafting)

    def _drafting(self, draft: LanguageModel | None) -> CompiledDecoder | None:
        """Return the decoder of a draft model; raise an error if it cannot guess tokens of this one."""
        if draft is None:
            return None
        if not isinstance(draft, LanguageModel):
            raise GenerationError(f"draft: expected a language model, returned by `load`, found {draft!r:.60}")
        if self.config.images is not None:
            raise GenerationError("draft: models that take images do not support drafts")
        decoder = draft._decoder.with_adapter(None)
        if decoder.vocabulary != self._decoder.vocabulary:
            sizes = f"{decoder.vocabulary} and {self._decoder.vocabulary}"
            raise GenerationError(f"draft: the models have different tokens: {sizes} of them")
        return decoder

    def follow(self, operations: Iterable[CacheOperation]) -> None:
        """Repeat the operations of the leading rank's engine until there are no more."""
        follow(self._decoder, operations)

    def _search_options(self, search: Mapping[str, object]) -> SearchOptions:
        """Return the search options; raise an error if ranks could draw different tokens."""
        options = with_options(self.config.search, search)
        if self.executable.artifact.metadata.get("ranks", 1) > 1 and not options.is_greedy and options.seed is None:
            raise GenerationError("seed: ranks of a model draw the same tokens only with a seed: give one, such as 0")
        return options

    def _grammar(self, constraints: Mapping[str, object]) -> Grammar | None:
        forms = {form: text for form, text in constraints.items() if text is not None}
        if not forms:
            return None
        if len(forms) > 1:
            raise GenerationError(f"an answer has one form, found {' and '.join(forms)}")
        if self.tokenizer is None:
            raise GenerationError(f"{self._place}: there is no {self._missing}, which forms of answers need")
        ((form, text),) = forms.items()
        return Grammar(self.tokenizer, self._decoder.vocabulary, self.config.ends, form, text)

    def perplexity(self, text: Prompt, window: int | None = None) -> Perplexity:
        """Return how well the model predicts a text, or tokens.

        The text is split into windows of this many tokens; the first token of each is not predicted. If texts of the
        model begin with a special token, it replaces the first token of each window. Tokens are used unchanged.
        """
        return measure_perplexity(self._decoder, self.text_windows(text, window), self.config.search.chunk_size)

    def text_windows(self, text: Prompt, window: int | None = None) -> list[np.ndarray]:
        """Return the tokens of a text in windows."""
        tokens = encode_prompt(self.tokenizer, self._decoder, text, True)
        start = self.tokenizer.start() if isinstance(text, str) and self.tokenizer is not None else []
        return split_windows(tokens, window, self.config.context, start)

    def text_logits(self, tokens: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the logits after each token of a window, in chunks."""
        return window_logits(self._decoder, tokens, self.config.search.chunk_size)

    def image_tokens(self, text: str, images: Sequence[ImageSource]) -> list[int]:
        """Return the tokens of a text with images: at its placeholders, or before it if it has none.

        An image is the path of a file, the bytes of one, or pixels: u8[height, width, 3].
        """
        return self._image_prompts.encode(text, images, special=True)

    def chat_tokens(self, messages: Sequence[Message], **variables: object) -> list[int]:
        """Return the tokens of a conversation, up to the start of the model's answer.

        If the last message is one of the model, the answer continues it. Images are parts of the content of a message:
        `{"type": "image", "image": FILE}`.
        """
        if self.template is None:
            raise GenerationError(f"{self._place}: there is no chat template: generate from text")
        if self.tokenizer is None:
            raise GenerationError(f"{self._place}: there is no {self._missing}: pass tokens in place of text")
        messages, images = take_images(messages)
        if images:  # templates of models of text fail in ways of their own
            self._require_images()
        text = self.template.render_beginning(messages, **variables)
        if self.config.images is None and not images:
            return self.tokenizer.encode(text, special=False)
        return self._image_prompts.encode(text, images, special=False)

    def __repr__(self) -> str:
        config, memory = self.config, self.executable.memory
        return f"<LanguageModel {config.kind} of {self._place}: {memory}>"

    @property
    def _place(self) -> Path:
        """Return the folder or the file of the model, as messages name it."""
        return self.config.folder if self.config.gguf is None else self.config.model

    @property
    def _missing(self) -> str:
        """Return the reason why there is no tokenizer."""
        if self.config.gguf is not None:
            return "tokenizer"
        if not (self.config.folder / SENTENCEPIECE).exists():
            return FILE
        save = (
            f"AutoTokenizer.from_pretrained({str(self.config.folder)!r}).save_pretrained({str(self.config.folder)!r})"
        )
        return f"{FILE} beside {SENTENCEPIECE} (transformers writes one: {save})"


SENTENCEPIECE = "tokenizer.model"
"""The file of SentencePiece tokenizers, for which `tokenizer.json` is required instead."""
OWN_OPTIONS = ("adapters", "mapped", "mmproj", "prefix_bytes", "pages", "model_impl", "trust_remote_code")
FORWARDED = tuple(name for name, declared in OPTIONS.items() if name != "model" and declared.only_for != FRAMEWORKS)
"""Options of `mirlo.compile` that `load` accepts."""


def load(
    folder: str | os.PathLike[str],
    *,
    adapters: Mapping[str, str | os.PathLike[str]] | None = None,
    mapped: bool = False,
    mmproj: str | os.PathLike[str] | None = None,
    prefix_bytes: int | None = None,
    pages: int | None = None,
    model_impl: str = DEFAULT.model_impl,
    trust_remote_code: bool = DEFAULT.trust_remote_code,
    **options: Any,
) -> LanguageModel:
    """Compile the language model of a folder or of a GGUF file; `options` are those of `mirlo.compile`.

    Weights of a model that is in the cache are copied to memory, in huge pages, from which cores read them faster. With
    `mapped` they stay in the file, which takes the least memory, and processes share it.

    `mmproj` is a GGUF file with the encoder of images for the model of another one.

    Layers with a sliding window keep the rows of the window only; with `ring_caches=False` those of all tokens.

    Rows of the caches for what sequences began with stay in up to `prefix_bytes` of memory: a sequence that begins with
    the same tokens does not compute them again. 0 keeps none; the default is 64 MiB.

    The caches of a model with `PagedAttention` have up to `pages` pages, which all its sequences share; what is kept of
    earlier sequences makes room for others, and may by default take all of them. Without `pages`, as many as the folder
    says, or as are needed. Models that are compiled from the code of transformers have caches in pages of 64 tokens
    with `pages`.

    `adapters` are files of LoRA adapters by names that generators choose them by: `.onnx_adapter`, `.safetensors`, or
    folders of PEFT. Their tensors are inputs of the model, so all adapters share its code and its weights. A model in
    ONNX must have such inputs; one of weights gets them for the products that the adapters change.

    Folders of safetensors whose architecture Mirlo lacks are compiled from the code of transformers, if that is
    installed; with `model_impl="transformers"` all are, with "mirlo" none. Files of Python in the folder run only with
    `trust_remote_code`.
    """
    code = CodeOptions(model_impl, trust_remote_code)
    refuse_unknown("mirlo.generate.load", list(options), [*OWN_OPTIONS, *FORWARDED])
    config = read_config(os.fspath(folder), None if mmproj is None else os.fspath(mmproj))
    _require_counts(prefix_bytes, pages)
    if pages is not None:
        require_pages(config, code)
    files = None
    is_checkpoint = config.is_checkpoint
    adapted: tuple[str, ...] = ()
    if adapters and is_checkpoint:
        read = {name: with_one_rank(file) for name, file in read_adapters(adapters).items()}
        if config.images is not None:
            read = {name: for_decoder(file) if file.is_peft else file for name, file in read.items()}
        adapted = adapted_modules(read.values())
        files = AdapterFiles(config, read, adapter_inputs(adapted))
    elif adapters:
        files = AdapterFiles(config, read_adapters(adapters), default_inputs(config.model))
        options["shapes"] = {**dict.fromkeys(files.optional), **(options.get("shapes") or {})}
    if config.names.tables:  # code for a number of rows reads pages where they are
        rows = dict.fromkeys(page_dims(config.model), config.page_rows or DEFAULT_ROWS)
        options["dims"] = {**rows, **(options.get("dims") or {})} or None
    if options.get("pipeline") is None:
        options.setdefault("last_rows", config.names.logits)
        if str(options.get("target", "llvm")).partition("{")[0].strip() == "llvm":
            # The places of rows in a ring depend on how many tokens a call has, and so does the order of their sums.
            options.setdefault("ring_caches", not options.get("invariant", False))
    # Graphs of weights are built with rings, where windows are shorter than the longest sequence.
    rings_below = (config.context or ALL) if is_checkpoint and options.pop("ring_caches", False) else 0
    page_rows = DEFAULT_ROWS if pages is not None else 0
    compiled = compile_model(model_to_compile(config, code, adapted, rings_below, page_rows), **options)
    if options.get("ranks", 1) > 1 and not isinstance(compiled, Executable):
        require_place(options["ranks"])
    executable = require_executable(compiled, config.model)
    of_images = None if config.images is None else partial(_compile_image_encoder, config, mapped, options)
    return LanguageModel(config, executable if mapped else executable.resident(), files, prefix_bytes, pages, of_images)


def _compile_image_encoder(config: ModelConfig, mapped: bool, options: Mapping[str, Any]) -> Executable:
    def make() -> ImportedModule:
        if config.projector is not None:
            from mirlo_llm.generate.gguf.projector import import_gguf_image_encoder

            assert config.images is not None  # that file says how
            return import_gguf_image_encoder(config.images, config.projector)
        from mirlo_llm.generate.checkpoints.image_encoder import import_image_encoder

        return import_image_encoder(config.model, config.source)

    graph = deferred_graph(make, partial(_source_files, config), "images")
    of_decoders = ("last_rows", "ranks", "ring_caches", "kv_cache_dtype", "dims", "shapes")
    own = {name: each for name, each in options.items() if name not in of_decoders}
    compiled = require_executable(compile_model(graph, **own), config.model)
    return compiled if mapped else compiled.resident()


def model_to_compile(
    config: ModelConfig, code: CodeOptions = DEFAULT, adapted: Sequence[str] = (), rings_below: int = 0,
    page_rows: int = 0,
) -> Path | ImportedModule:  # fmt: skip
    """Return the file of a model, or a graph of its weights that is built on demand.

    `adapted` are the layers that adapters change. Layers with a window of fewer tokens keep only its rows. Caches by
    the code of transformers are in pages of `page_rows`, unless that is 0.
    """
    if not config.is_checkpoint:
        return config.model
    if config.gguf is None and is_traced(read_json(config.source), code):
        return _traced_model(config, code, adapted, 0 if page_rows else rings_below, page_rows)

    def make() -> ImportedModule:
        if config.gguf is not None:
            from mirlo_llm.generate.gguf.decoder import import_gguf

            return import_gguf(config.model, config.gguf, config.images, adapted, rings_below)
        if config.images is not None:
            from mirlo_llm.generate.checkpoints.image_decoder import import_image_decoder

            return import_image_decoder(config.model, config.source, adapted)
        from mirlo_llm.generate.checkpoints.decoder import import_checkpoint

        return import_checkpoint(config.model, config.source, adapted, rings_below)

    return deferred_graph(make, partial(_source_files, config), _use_of(adapted, rings_below))


def require_pages(config: ModelConfig, code: CodeOptions = DEFAULT) -> None:
    """Raise an error for a model whose files show that its caches cannot be in pages."""
    if not config.is_checkpoint:
        is_paged = bool(config.names.tables) or has_pages(config.model)
    else:
        is_paged = config.gguf is None and is_traced(read_json(config.source), code)
    if not is_paged:
        raise GenerationError(_no_pages(config))


def _no_pages(config: ModelConfig) -> str:
    """Return why the caches of a model are not in pages."""
    what = "only PagedAttention, and models by the code of transformers (model_impl='transformers'), have such"
    if config.gguf is not None:
        what = f"{what}: GGUF files have no such code, the folder of safetensors may"
    return f"pages: the caches of {config.model} are not in pages: {what}"


def _require_counts(prefix_bytes: int | None, pages: int | None) -> None:
    for name, value, least, what in (("prefix_bytes", prefix_bytes, 0, "bytes"), ("pages", pages, 1, "pages")):
        if value is not None and not is_count(value, least, 1 << 62):
            raise GenerationError(f"{name}: expected a number of {what}, found {value!r:.40}")


def _use_of(adapted: Sequence[str], rings_below: int) -> str:
    """Return what distinguishes graphs with rings, and with inputs for adapters of these layers."""
    rings = [f"rings below {rings_below}"] if rings_below else []
    return " ".join((*rings, *(["adapters of", *adapted] if adapted else [])))


def _traced_model(
    config: ModelConfig, code: CodeOptions, adapted: Sequence[str], rings_below: int, page_rows: int
) -> ImportedModule:
    """Return the graph by the code of transformers, built if the cache has no compiled model."""

    def make() -> ImportedModule:
        from mirlo_llm.generate.traced.decoder import import_traced_decoder

        return import_traced_decoder(
            config.model, config.source, code.trust_remote_code, adapted, rings_below, page_rows
        )

    own, use = traced_sources(read_json(config.source), code)
    use = f"{use} {_use_of(adapted, rings_below)}" + (f" pages of {page_rows}" if page_rows else "")
    return deferred_graph(make, lambda: [*_source_files(config), *own], use)


def _source_files(config: ModelConfig) -> list[Path]:
    """Return the files that a checkpoint's graph depends on."""
    if config.gguf is None:
        return [config.source, *checkpoint_files(config.model)]
    return [config.model, *([] if config.projector is None else [config.projector.metadata.path])]


def _decoder_of(
    config: ModelConfig,
    executable: Executable,
    adapters: AdapterFiles | None,
    prefix_bytes: int | None,
    pages: int | None,
) -> CompiledDecoder:
    """Return the decoder of a model: the paged one if its attention reads pages."""
    _require_counts(prefix_bytes, pages)
    if executable.artifact.pages:
        return PagedDecoder(config, executable, adapters, prefix_bytes, pages)
    if pages is not None:
        raise GenerationError(_no_pages(config))
    prefixes = PrefixCache(DEFAULT_BYTES if prefix_bytes is None else prefix_bytes)
    if config.images is not None:
        return ImageDecoder(config, executable, adapters, prefixes)
    return CompiledDecoder(config, executable, adapters, prefixes)
