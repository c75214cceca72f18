"""The peer of tokenizers.ts: Hugging Face tokenizers. Commands come as lines of JSON, results go back the same way.

    python tokenizers_peer.py make FOLDER CORPUS    trains the vocabularies and writes FOLDER/NAME/tokenizer.json
    python tokenizers_peer.py time FILE TEXT        prints seconds of opening FILE and of encoding the file TEXT
"""

import json
import os
import random
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SIZE = 250_000


def words(count):
    """Random words that share syllables, in several scripts."""
    rng = random.Random(1)
    syllables = [a + b for a in "bcdfghjklmnprstvwz" for b in "aeiou"] + [a + b for a in "бвгдклмнпрст" for b in "аеиоу"]
    syllables += [chr(0x4E00 + 37 * i) for i in range(400)]
    for _ in range(count):
        yield "".join(rng.choice(syllables) for _ in range(rng.randrange(2, 7)))


def make(folder, corpus):
    text = open(corpus, encoding="utf-8").read()
    texts = text.splitlines(keepends=True) + [f" {word}" for word in words(300_000)]
    level = pre_tokenizers.ByteLevel(False, use_regex=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    save(tokenizer, folder, "bytes")

    spaced = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    spaced.normalizer = normalizers.Replace(" ", "▁")
    spaced.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=SIZE, show_progress=False, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)])
    spaced.train_from_iterator(texts, trainer)
    spaced.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    spaced.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    save(spaced, folder, "pieces")


def save(tokenizer, folder, name):
    os.makedirs(f"{folder}/{name}", exist_ok=True)
    tokenizer.save(f"{folder}/{name}/tokenizer.json")


def best(run, count):
    times = []
    for _ in range(count):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def measure(file, text):
    text = open(text, encoding="utf-8", newline="").read()
    opening = best(lambda: Tokenizer.from_file(file), 3)
    tokenizer = Tokenizer.from_file(file)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    # What it does for a text besides ids, offsets and tokens, is left out by encode_batch_fast.
    encoding = best(lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False), 3)
    print(json.dumps({"version": tokenizers.__version__, "opening": opening, "encoding": encoding, "ids": ids}))


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    measure(sys.argv[2], sys.argv[3])
