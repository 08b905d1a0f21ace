"""How fast the embedded generator answers, by number type, lanes and shared prefixes.

Prints seconds a request for prompts of about 320 tokens and 24 new tokens, and for prompts
that share a 350-token beginning and end in 100 tokens of their own, with the beginning kept
and not kept. "cpu" is processor time over threads: on a machine that is busy with other
work, it is the steadier number.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Literal

from ragassay.generation.engine import Engine
from ragassay.generation.hf import ChatCodec, EmbeddedSmolLM2
from ragassay.types import Generation, Message, Request, Sampling

PROMPT_TOKENS = 320
PREFIX_TOKENS = 350
SUFFIX_TOKENS = 100
SENTENCE = (
    "The harbor of {a} was built in {b} by the company of {c}, and its lighthouse still guides "
    "the ferries that leave for {d} every morning at seven. "
)
PLACES = ("Ostrand", "Marlow", "Arden", "Sorrel", "Brindle", "Weston", "Lisbon", "Tarn")


def prose(codec: ChatCodec, tokens: int, seed: int) -> str:
    """About that many tokens of text, different for every seed."""
    text, number = "", 0
    while True:
        values = {
            key: PLACES[(seed * 3 + number * (i + 1) + i) % len(PLACES)]
            for i, key in enumerate("acd")
        }
        longer = text + SENTENCE.format(b=1500 + (37 * seed + number) % 500, **values)
        if len(codec.prompt([Message(role="user", content=longer)])) > tokens:
            return text
        text, number = longer, number + 1


def plain_requests(codec: ChatCodec, count: int, new_tokens: int) -> list[Request]:
    return [
        Request(
            messages=(
                Message(
                    role="user",
                    # Lengths vary as those of real prompts do.
                    content=prose(codec, PROMPT_TOKENS - 60 + 15 * (i % 9), i) + "Tell it again.",
                ),
            ),
            sampling=Sampling(max_tokens=new_tokens),
        )
        for i in range(count)
    ]


def shared_requests(codec: ChatCodec, count: int, new_tokens: int) -> list[Request]:
    system = Message(role="system", content=prose(codec, PREFIX_TOKENS + 45, 1000))
    return [
        Request(
            messages=(system, Message(role="user", content=prose(codec, SUFFIX_TOKENS + 60, i))),
            sampling=Sampling(max_tokens=new_tokens),
        )
        for i in range(count)
    ]


def measure(label: str, engine: Engine, requests: Sequence[Request], threads: int) -> None:
    engine.generate(requests[:1])
    start, cpu = time.perf_counter(), time.process_time()
    answers = engine.generate(requests)
    wall = (time.perf_counter() - start) / len(requests)
    busy = (time.process_time() - cpu) / len(requests) / threads
    good = [answer for answer in answers if isinstance(answer, Generation)]
    if len(good) < len(answers):
        raise SystemExit(f"{label}: {len(answers) - len(good)} requests failed")
    tokens_in = sum(answer.input_tokens for answer in good) / len(good)
    tokens_out = sum(answer.output_tokens for answer in good) / len(good)
    print(
        f"{label:34s} {wall:6.3f} s a request (cpu {busy:6.3f}), {1 / wall:5.2f} requests/s, "
        f"{tokens_in:4.0f} tokens in, {tokens_out:3.0f} out",
        flush=True,
    )


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for dtype in options.dtypes:
        measure_dtype(dtype, options)


def measure_dtype(dtype: Literal["float32", "bfloat16"], options: argparse.Namespace) -> None:
    start = time.perf_counter()
    model = EmbeddedSmolLM2(dtype=dtype)
    engine = model._engine.get(model._load)
    print(f"{dtype}: loaded in {time.perf_counter() - start:.1f} s")
    codec = engine._codec
    if not isinstance(codec, ChatCodec):
        raise TypeError(f"expected a ChatCodec, got {type(codec).__name__}")
    plain = plain_requests(codec, options.requests, options.new_tokens)
    shared = shared_requests(codec, options.requests, options.new_tokens)
    for lanes in options.lanes:
        some = plain[: 2 * lanes + 6]  # few lanes are slow, and repeat the same work
        measure(f"{dtype}, {lanes} lanes", Engine(engine._model, codec, batch_size=lanes), some,
                options.threads)  # fmt: skip
    for share in (False, True):
        again = Engine(engine._model, codec, batch_size=model.batch_size, share_prefixes=share)
        label = f"{dtype}, prefix {'kept' if share else 'not kept'}"
        measure(label, again, shared, options.threads)


if __name__ == "__main__":
    main()
