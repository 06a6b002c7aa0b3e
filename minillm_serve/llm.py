"""The engine's Python face: `LLM(model).generate(prompts)`."""

import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch

from minillm_serve.assemble import assemble
from minillm_serve.core import Policy, PrefixStats, Request, SamplingParams, SpecStats
from minillm_serve.llm_engine import LLMEngine
from minillm_serve.outputs import RequestOutput
from minillm_serve.progress import Progress
from minillm_serve.prompts import (
    Message,
    Prompt,
    as_list,
    chat_ids,
    one_each,
    one_priority_each,
    one_salt_each,
)
from minillm_serve.runtime.structured.grammar import GrammarCompiler
from minillm_serve.runtime.torch_executor import TorchExecutor
from minillm_serve.runtime.warm_up import warm_up
from minillm_serve.scheduling import Scheduling
from minillm_serve.speculation import SpeculativeConfig
from minillm_serve.stream import TextStream


class LLM:
    """A model, its KV cache and the engine that serves it, in this process.

    Several threads may call it: they take turns, step by step, and are batched together.

    Args:
        model: the embedded model's name, a local directory, a `.gguf` file, or a hub id.
        dtype: of weights and KV cache; "auto" is float32 on a CPU, the model's own on a GPU.
        device: "auto" takes a GPU where there is one.
        quantization: keep the weights in fewer bits: "int8" (a step an output channel) or "int4" (a
            step and a start for 32 neighbours; embedding and output head stay in 8 bits). They are
            quantized while they are read; a checkpoint that was saved quantized needs no word. On a
            CPU in float32 only, and what multiplies the weights is rounded to 8 bits as well.
        block_size: tokens a KV block (P).
        num_blocks: KV blocks in the pool; by default as many as `kv_cache_memory` holds.
        kv_cache_memory: bytes for the pool; by default a share of what is free.
        kv_cache_dtype: "auto" keeps keys and values in `dtype`; "int8" and "fp8" (e4m3) in 8 bits
            with a scale for each token and head, so that about twice as many tokens fit as in 16.
            (A drafter's own stay as they are.)
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: most tokens computed in a step; longer prompts go in chunks.
        max_model_len: most tokens of a sequence, prompt and output; by default the model's own.
        seed: of the draws of requests that bring none.
        attention_backend: "auto" or a name; see `minillm_serve.runtime.attention.registry`.
        scheduler: "continuous", or for comparison "static" or "dynamic"; see `core.scheduler`.
        policy: "fcfs", "priority" (with ageing), "sjf" (shortest first) or a `core.Policy`.
        max_queue_delay: seconds that a static or dynamic batch waits to be filled. (Only if you
            drive `engine` yourself: otherwise nobody else is coming.)
        swap_space: bytes of host memory for the KV of preempted sequences.
        preemption: "recompute", "swap", or "auto", which takes what costs less.
        prefix_cache: "hash" or "radix": keep the KV of prompts and answers while there is room, for
            whoever comes with the same beginning. None computes everything.
        speculative_config: guess several tokens and verify them in one step: "auto", "ngram",
            "eagle", "early_exit", or {"method": ..., "num_speculative_tokens": ...}; see
            `SpeculativeConfig`. Greedy requests and requests with a seed get the very tokens that
            they would get without; others get tokens of the same distribution.
        max_num_waiting: refuse further requests (`core.Overloaded`) while so many wait.
        max_waiting_tokens: likewise, while those who have not begun may come to so many tokens,
            prompts and answers.
        refuse_late: refuse at once whoever, by an estimate, would not begin before their deadline.
        parts: parts of your own for slots of the engine, as in `{"block_pool": MyBlockPool}`; what
            each slot takes is in `minillm_serve.parts.SLOTS`. On start one line on stderr tells
            which parts are whose.
        async_scheduling: schedule a step while the one before it runs; see `EngineCore`. The tokens
            are the same. None does so on a GPU only.
        enforce_eager: on a GPU, launch the kernels of decode steps one by one instead of replaying
            CUDA graphs: it starts sooner, and is slower.
        compile: let `torch.compile` have the MLPs; the first steps then take a while.
        debug_invariants: check the engine's bookkeeping around every step.

    Attributes:
        model_path: the directory that was really loaded.
        model_config: its `ModelConfig`.
        tokenizer: transformers' tokenizer.
        kv_cache: the `KVCache`.
        engine: the `EngineCore`.
        llm_engine: the `LLMEngine` around it.
        parts: which parts are yours and which are ours.
        grammars: compiles `SamplingParams.structured_outputs`.
        max_num_waiting: as given.

    Raises:
        ValueError: an argument or the model is not usable; the message says what to do.
        PartError: a part of yours is not usable; or, from any method, it failed. A block pool or a
            scheduler that failed takes the engine with it: it answers nobody any more.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        dtype: str | torch.dtype = "auto",
        device: str | torch.device = "auto",
        quantization: str | None = None,
        block_size: int = 16,
        num_blocks: int | None = None,
        kv_cache_memory: int | None = None,
        kv_cache_dtype: str = "auto",
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        max_model_len: int | None = None,
        seed: int = 0,
        attention_backend: str = "auto",
        scheduler: str = "continuous",
        policy: str | Policy = "fcfs",
        max_queue_delay: float | None = None,
        swap_space: int = 0,
        preemption: str = "auto",
        max_num_waiting: int | None = None,
        max_waiting_tokens: int | None = None,
        refuse_late: bool = False,
        prefix_cache: str | None = "hash",
        speculative_config: str | Mapping[str, Any] | SpeculativeConfig | None = None,
        parts: Mapping[str, Any] | None = None,
        async_scheduling: bool | None = None,
        enforce_eager: bool = False,
        compile: bool = False,
        debug_invariants: bool = False,
    ) -> None:
        assembly = assemble(
            model,
            dtype=dtype,
            device=device,
            quantization=quantization,
            block_size=block_size,
            num_blocks=num_blocks,
            kv_cache_memory=kv_cache_memory,
            kv_cache_dtype=kv_cache_dtype,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            seed=seed,
            attention_backend=attention_backend,
            scheduling=Scheduling(
                scheduler=scheduler,
                policy=policy,
                max_queue_delay=max_queue_delay,
                swap_space=swap_space,
                preemption=preemption,
                max_num_waiting=max_num_waiting,
                max_waiting_tokens=max_waiting_tokens,
                refuse_late=refuse_late,
            ),
            prefix_cache=prefix_cache,
            speculation=SpeculativeConfig.of(speculative_config),
            parts=parts,
            async_scheduling=async_scheduling,
            enforce_eager=enforce_eager,
            compile=compile,
            debug_invariants=debug_invariants,
        )
        self.engine = assembly.engine
        self.model_path = assembly.model_path
        self.model_config = assembly.model_config
        self.tokenizer = assembly.tokenizer
        self.kv_cache = assembly.kv_cache
        self.parts = assembly.parts
        self.max_num_waiting = max_num_waiting
        if self.parts.yours:
            print(self.parts, file=sys.stderr)
        self.llm_engine = LLMEngine(self.engine, self.tokenizer, self.parts)
        self.grammars = GrammarCompiler(
            self.tokenizer, self.model_config.vocab_size, self.engine.eos_token_ids
        )
        self._numbers = count(1)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int | Sequence[int] = 0,
        cache_salt: str | Sequence[str | None] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Completes prompts, batched together.

        Args:
            prompts: a prompt or a list of them; each a string or a list of token ids.
            sampling_params: one for all, or one for each prompt.
            priority: likewise; the lower goes first under `LLM(policy="priority")`.
            cache_salt: likewise; KV is shared only among those who bring the same.
            use_tqdm: show progress and output tokens/s.

        Returns:
            One output a prompt, in the order of the prompts; each with `SamplingParams.n` answers.

        Raises:
            ValueError: a prompt can never be served; none of them has been started then.
        """
        asked = as_list(prompts)
        params = one_each(sampling_params, len(asked))
        ranks = one_priority_each(priority, len(asked))
        salts = one_salt_each(cache_salt, len(asked))
        return self._run(list(map(self._request, asked, params, ranks, salts)), use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str | Sequence[str | None] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answers one conversation, or several, in the model's chat template.

        Args:
            messages: `[{"role": "user", "content": "..."}]`, or a list of such lists.
            sampling_params: as for `generate`.
            cache_salt: as for `generate`.
            use_tqdm: as for `generate`.

        Returns:
            One output a conversation.

        Raises:
            ValueError: as for `generate`; or the model has no chat template.
        """
        several = bool(messages) and isinstance(messages[0], list | tuple)
        conversations: Any = messages if several else [messages]
        prompts = [self.chat_prompt(conversation) for conversation in conversations]
        return self.generate(prompts, sampling_params, cache_salt=cache_salt, use_tqdm=use_tqdm)

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> TextStream:
        """Completes one prompt, piece by piece: the pieces joined are `generate`'s text.

        Closing the iterator early aborts the request and frees its blocks. For the arguments see
        `generate`.

        Raises:
            ValueError: the prompt can never be served, or several answers are asked for; raised
                here, not at the first piece.
            RuntimeError: the computation failed for this request, from the iterator.
        """
        params = sampling_params or SamplingParams()
        if params.n > 1:
            raise ValueError(
                f"n={params.n}: a stream has one text; open several with seeds of their own, or "
                "use generate()"
            )
        request, text = self._request(prompt, params, priority, cache_salt)
        (collector,) = self.llm_engine.add([(request, text)])
        return TextStream(collector, self.llm_engine.step, self.llm_engine.drop)

    def chat_prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation in the model's chat template, up to the assistant's turn.

        Raises:
            ValueError: no messages, or no chat template.
        """
        return chat_ids(self.tokenizer, messages, self.model_path.name)

    @property
    def prefix_stats(self) -> PrefixStats:
        """What the prefix cache holds, and what it was good for since the last reset."""
        return self.engine.prefix_stats

    @property
    def spec_stats(self) -> SpecStats:
        """Drafts so far, and how many of them were right; zeros without `speculative_config`."""
        return self.engine.spec_stats

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached KV and begins to count anew; False, and nothing, while any run."""
        return self.llm_engine.reset_prefix_cache()

    def warm_up(self) -> None:
        """Compiles what steps need, before the first request has to wait for it.

        On a new machine that takes up to a minute, later next to nothing. Without it, whatever is
        missing is compiled when it is needed. What is in the prefix cache is forgotten.

        Raises:
            RuntimeError: requests are being served.
        """
        if not self.reset_prefix_cache():
            raise RuntimeError("warm_up() needs an idle engine: call it before the first request")
        scheduler = self.engine.scheduler
        executor = self.engine.executor
        assert isinstance(executor, TorchExecutor)
        warm_up(
            executor,
            max_num_seqs=scheduler.max_num_seqs,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_len=scheduler.max_len,
        )

    def _request(
        self,
        prompt: Prompt,
        params: SamplingParams,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> tuple[Request, str | None]:
        text = prompt if isinstance(prompt, str) else None
        ids = tuple(self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        name = f"llm-{next(self._numbers)}"
        asked = Request(
            request_id=name,
            prompt_token_ids=ids,
            params=params,
            priority=priority,
            cache_salt=cache_salt,
            grammar=self.grammars.compile(params.structured_outputs),
        )
        return asked, text

    def _run(
        self, requests: list[tuple[Request, str | None]], use_tqdm: bool
    ) -> list[RequestOutput]:
        collectors = self.llm_engine.add(requests)
        progress = Progress(len(collectors), shown=use_tqdm)
        try:
            while not all(collector.finished for collector in collectors):
                progress.advance(self.llm_engine.step())
        finally:
            # After an interrupt or a fault nothing of this call stays in the engine.
            progress.close()
            for collector in collectors:
                self.llm_engine.drop(collector)
        return [collector.output() for collector in collectors]
