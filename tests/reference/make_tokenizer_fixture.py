#!/usr/bin/env python3
"""Makes tokenizer_fixture.json: a tiny byte-level BPE in several forms of tokenizer.json, each with
texts and what the Hugging Face `tokenizers` library makes of them.

Run, in a virtual environment with tokenizers==0.22.2:
  python3 tests/reference/make_tokenizer_fixture.py > tests/reference/tokenizer_fixture.json

The forms share one model ("model"); "tokenizer" of a form holds the other keys of its file. A form
may set keys of the model ("model_changes") or write its merges as "a b" ("merges_as_text").
"""

import json
import sys

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [
    "The quick brown fox jumps over the lazy dog. They don't know what it's worth, and we've seen "
    "that I'll go where you're going. He'd say: THE END!",
    "In 2024 there were 365 days, 12 months and 1,000,000 things to do; 3.14159 is not 22/7.",
    "for (int i = 0; i < 10; ++i) {\n    sum += values[i];\n}\n\n\treturn sum;\n",
    "Das Mädchen aß Äpfel. Où est la bibliothèque? El niño comió. Привет, мир! Как дела?",
    "日本語のテキストです。中文文本也在这里。한국어 텍스트.",
    "the other weather, the other mother, another brother; whether together or neither",
]

GPT2_LIKE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
BYTES_ONLY = dict(GPT2_LIKE, use_regex=False)
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
LATE = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def template(before, after):
    parts = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before]
    parts.append({"Sequence": {"id": "A", "type_id": 0}})
    parts += [{"SpecialToken": {"id": t, "type_id": 0}} for t in after]
    names = {"<|begin|>": 1, "<|end|>": 2}
    return {"type": "TemplateProcessing", "single": parts,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]}
                               for n, i in names.items() if n in before + after}}


def added(id, content, special=False, normalized=False):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": normalized, "special": special}


SPECIAL = [added(0, "<|endoftext|>", True), added(1, "<|begin|>", True), added(2, "<|end|>", True)]
POST_BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
              "use_regex": True}


def forms(size):
    # Ids past the model's: tokens that only the list of added tokens has. Their letters are outside
    # of Latin-1: the library decodes an added token "é!" as if its text were in the byte alphabet.
    plain = [added(size, "<tool>"), added(size + 1, "<tool><tool>"), added(size + 2, "việt"),
             added(size + 3, "   ", normalized=True), added(size + 4, "ế!", normalized=True)]
    yield "gpt2", {"pre_tokenizer": GPT2_LIKE, "added_tokens": SPECIAL}, {"merges_as_text": True}
    yield "gpt2_prefix_space", {"pre_tokenizer": dict(GPT2_LIKE, add_prefix_space=True),
                                "added_tokens": SPECIAL, "post_processor": POST_BYTES}, {}
    yield "digits", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True},
                                               GPT2_LIKE), "added_tokens": SPECIAL + plain}, {}
    yield "digit_runs", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False},
                                                   dict(BYTES_ONLY, add_prefix_space=True)),
                         "added_tokens": SPECIAL}, {}
    yield "llama3", {"pre_tokenizer": sequence(split(LLAMA3), BYTES_ONLY),
                     "added_tokens": SPECIAL + plain,
                     "post_processor": {"type": "Sequence", "processors": [
                         POST_BYTES, template(["<|begin|>"], [])]}}, \
        {"model_changes": {"ignore_merges": True}}
    yield "qwen2", {"pre_tokenizer": sequence(split(QWEN2), BYTES_ONLY),
                    "normalizer": {"type": "NFC"}, "added_tokens": SPECIAL + plain,
                    "post_processor": POST_BYTES}, {}
    yield "template_both", {"pre_tokenizer": sequence(split(LATE), BYTES_ONLY),
                            "normalizer": {"type": "NFC"}, "added_tokens": SPECIAL,
                            "post_processor": template(["<|begin|>"], ["<|end|>"])}, {}


CASES = [
    "", " ", "  ", "\n", "\n\n", "a", " a", "  a", "a ", "a  ", "\t\tx", " \n \n x \n",
    "the other weather", "Hello, world!", "don't DON'T I'LL we've you're he'd it'S 's 'S '\u017f",
    "0", "12", "1234567", "3.14", "x1y22z333", "½ ² Ⅷ ٣٤ 一二",
    "日本語のテキスト", "中文文本", "한국어", "Привет", "مرحبا", "नमस्ते",
    "e\u0301 \u00e9 e\u0302\u0301! \u1ebf! nai\u0308ve naïve", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "\u212b \ufb01 \u2126", "a\u0323\u0307 a\u0307\u0323", "🙂", "👩‍👩‍👧‍👦 family", "🇩🇪🏳️‍🌈", "\U0001d54f\U0010ffff",
    "a\u00a0b\u2003c\u3000d\u0085e\u2028f\u180eg\u200bh\ufeffi", "\r\n\r\n \r\n", "tabs\t\tand\r\nlines\n\n\nend",
    "<|endoftext|>", "a<|endoftext|>b", "<|begin|><|end|>", " <|begin|> x <|end|> ", "<|begin|",
    "<tool>", "<tool><tool>", "<tool><tool><tool>", "x<tool>y <tool> z", "a   b    c      d       ",
    "việt ngviệtx vie\u0323\u0302t", "caế! CAẾ! café!", "    return sum;\n}\n", "#include <vector>\n\tint main(){}",
    "https://example.org/a_b?c=%20&d=#e", "\x00\x01\x7f", "ÄÖÜäöüß ŁŃ", "…—–“”‘’", "THE END! the end",
    "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
    "the" * 40, "!" * 30 + "\n" * 3, "ab\u0301\u0302\u0303c", "\u0301 start", "ﬀ ﬁ 'ﬆ",
]


def main():
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    base.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False,
                                  special_tokens=["<|endoftext|>", "<|begin|>", "<|end|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    base.train_from_iterator(TEXTS * 3, trainer)
    model = json.loads(base.to_str())["model"]
    out = {"made_with": {"tokenizers": tokenizers.__version__}, "model": model, "forms": []}
    for name, keys, extra in forms(len(model["vocab"])):
        own = dict(model, **extra.get("model_changes", {}))
        whole = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
                 "post_processor": None,
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                             "use_regex": True}, **keys}
        tokenizer = Tokenizer.from_str(json.dumps(dict(whole, model=own)))
        cases = []
        for text in CASES:
            ids = tokenizer.encode(text).ids
            case = {"text": text, "ids": ids,
                    "decoded": tokenizer.decode(ids, skip_special_tokens=True),
                    "decoded_all": tokenizer.decode(ids, skip_special_tokens=False)}
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            if plain != ids:
                case["ids_without_template"] = plain
            cases.append(case)
        out["forms"].append({"name": name, **extra, "tokenizer": whole, "cases": cases})
    # One form or case a line: readable differences, and not a number a line.
    rows = ",\n".join(
        json.dumps({k: v for k, v in form.items() if k != "cases"})[:-1] + ', "cases": [\n  '
        + ",\n  ".join(json.dumps(case) for case in form["cases"]) + "]}" for form in out["forms"])
    sys.stdout.write('{"made_with": ' + json.dumps(out["made_with"]) + ',\n"model": '
                     + json.dumps(model) + ',\n"forms": [\n' + rows + "]}\n")


main()
