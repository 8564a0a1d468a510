#!/usr/bin/env python3
"""Make the reference files of the transformer tests with Hugging Face transformers.

The files beside this script are what another, widely used implementation says
about the same weights: transformers' own model classes, float32 on the CPU,
eager attention, one thread. Nothing of rankcast takes part in making them.

Run (in a virtual environment outside the checkout; about 6 GB, as PyPI's torch
brings its CUDA libraries along):

  python3 -m venv /tmp/refvenv
  /tmp/refvenv/bin/pip install torch==2.6.0 transformers==4.57.3 \\
      tokenizers==0.22.2 safetensors==0.8.0 numpy==2.4.6 jinja2==3.1.6
  /tmp/refvenv/bin/python tests/reference/make_reference.py tiny
  /tmp/refvenv/bin/python tests/reference/make_reference.py smollm2 "$(tools/get-model smollm2-135m)"

Those are the versions that the committed files were made with (python 3.11,
x86-64). An older transformers will not do for qwen2_window: 4.48.3 leaves the
window out under eager attention; on the other tiny files it agrees with 4.57.3
to the last digit. `tiny --only NAME` makes one of them.

tiny/NAME.json

  Small random models, one per feature. Their weights are not stored; every
  reader makes them from the tensor's name. For element i (row-major) of a
  tensor called `name`, in unsigned 64-bit arithmetic:

    fnv1a64(s):     h = 0xCBF29CE484222325
                    for each byte b of s: h = (h ^ b) * 0x100000001B3
    splitmix64(x):  x += 0x9E3779B97F4A7C15
                    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
                    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
                    return x ^ (x >> 31)
    u     = (splitmix64(fnv1a64(name) + i) >> 40) * 2^-24       exact in float32
    value = offset + (u - 0.5) * scale                          in float32

  The scales are powers of two, so only the addition of the offset can round,
  and it rounds the same in float32 and in float64 cast to float32.

    config     the content of config.json, as transformers is given it
    tensors    [{name, shape, offset, scale}]: all that a checkpoint stores
               (a tied head is left out)
    scales     the rule behind offset and scale, in words
    checksum   {name, first, last, crc32}: of one tensor, to test a generator
               (crc32 of its little-endian float32 bytes)
    prompts    [[id, ...], ...]
    logits     [prompt][position][vocabulary]
    greedy     the 16 tokens that follow the first prompt, taking the largest
               logit each time (end-of-text is not looked at)
    greedy_margins  how far the largest logit is above the second, each time
    differs    {what was changed: largest change of a logit}: that the feature
               under test can be seen in this file at all

smollm2_135m.json

  The same for the folder that tools/get-model makes.

    model_sha256   of model.safetensors
    vocab_stride   97
    prompts[]      text, ids, and
        last_logits    of the last position, at ids 0, 97, 194, ...
        last_top10     [[id, logit], ...] of the last position
        top1           [[id, logit], ...] of every position
        greedy         64 tokens that follow (first two prompts only;
                       end-of-text is not looked at)
        greedy_margins see above
    tokenizer[]    text, ids, decoded (special tokens kept): more of the
                   tokenizer's behaviour
    chat           messages, text: what the chat template makes of them

Numbers are printed with 9 significant digits, enough to name any float32.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import zlib
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import numpy as np  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: E402

HERE = Path(__file__).resolve().parent
VERSIONS = {"python": sys.version.split()[0], "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__, "tokenizers": tokenizers.__version__}

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
         "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "rope_scaling": None, "max_position_embeddings": 128, "tie_word_embeddings": False,
         "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
         "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "max_position_embeddings": 128,
         "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu",
           "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 128,
           "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
           "torch_dtype": "float32"}
PHI3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_act": "silu",
        "attention_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_scaling": None, "max_position_embeddings": 128,
        "original_max_position_embeddings": 128, "tie_word_embeddings": False,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "torch_dtype": "float32"}
NEOX = {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_act": "gelu",
        "attention_bias": True, "layer_norm_eps": 1e-5, "rotary_pct": 0.25,
        "rotary_emb_base": 10000, "max_position_embeddings": 128, "tie_word_embeddings": False,
        "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "float32"}


def dims(hidden, heads, kv, inter, layers, vocab):
    result = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv,
              "intermediate_size": inter, "num_hidden_layers": layers, "vocab_size": vocab}
    if kv is None:
        del result["num_key_value_heads"]
    return result


# name -> (config, scale of the matrices, {what: changed keys} that must be seen)
TINY = {
    "llama": ({**LLAMA, **dims(32, 8, 2, 53, 3, 61)}, 1.0, {}),
    "llama_tied": ({**LLAMA, **dims(36, 9, 3, 46, 2, 67), "tie_word_embeddings": True,
                    "rope_theta": 100000.0}, 1.0, {"rope_theta 10000": {"rope_theta": 10000.0}}),
    "llama3_rope": (
        {**LLAMA, **dims(96, 6, 2, 77, 2, 71), "rope_theta": 500.0,
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
        0.5, {"no rope scaling": {"rope_scaling": None},
              "linear rope scaling": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}}),
    "llama_bias": ({**LLAMA, **dims(48, 6, 3, 50, 2, 73), "attention_bias": True,
                    "mlp_bias": True}, 1.0, {}),
    # use_sliding_window is off, so sliding_window must be left alone
    "qwen2": ({**QWEN2, **dims(56, 7, 1, 57, 2, 73), "tie_word_embeddings": True,
               "use_sliding_window": False, "sliding_window": 4, "max_window_layers": 1}, 1.0,
              {"with the window": {"use_sliding_window": True}}),
    "qwen2_window": ({**QWEN2, **dims(48, 6, 2, 58, 3, 77), "tie_word_embeddings": False,
                      "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
                     1.0, {"no window": {"use_sliding_window": False},
                           "window on all layers": {"max_window_layers": 0},
                           "window of 5": {"sliding_window": 5}}),
    "mistral_window": ({**MISTRAL, **dims(40, 5, 1, 49, 3, 79), "head_dim": 8,
                        "sliding_window": 4}, 1.0,
                       {"no window": {"sliding_window": None},
                        "window of 5": {"sliding_window": 5}}),
    "mistral_nemo": ({**MISTRAL, **dims(40, 8, 4, 62, 2, 83), "head_dim": 12,
                      "sliding_window": None, "rope_theta": 1000000.0}, 1.0, {}),
    "phi3": ({**PHI3, **dims(48, 6, 2, 49, 2, 79), "sliding_window": None}, 1.0, {}),
    "phi3_window": ({**PHI3, **dims(40, 5, 5, 51, 2, 83), "sliding_window": 5}, 1.0,
                    {"no window": {"sliding_window": None},
                     "window of 4": {"sliding_window": 4}}),
    "gpt_neox": ({**NEOX, **dims(96, 6, None, 110, 2, 89), "use_parallel_residual": True}, 0.5,
                 {"sequential residual": {"use_parallel_residual": False},
                  "full rotary": {"rotary_pct": 1.0}}),
    "gpt_neox_sequential": ({**NEOX, **dims(80, 5, None, 93, 3, 97), "rotary_emb_base": 500,
                             "use_parallel_residual": False}, 1.0,
                            {"parallel residual": {"use_parallel_residual": True},
                             "rotary base 10000": {"rotary_emb_base": 10000}}),
}

MASK = (1 << 64) - 1


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def generate(name, shape, offset, scale):
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        x = np.uint64(fnv1a64(name)) + np.arange(count, dtype=np.uint64)
        x += np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    u = (x >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -24)
    value = np.float32(offset) + (u - np.float32(0.5)) * np.float32(scale)
    assert value.dtype == np.float32
    return value.reshape(shape)


def rule(name, scale):
    """(offset, scale) of a tensor."""
    if name.endswith(".bias"):
        return 0.0, 0.5
    if name.endswith("norm.weight"):
        return 1.0, 0.25
    return 0.0, scale


def short(value):
    return float(f"{float(value):.9g}")


def tiny_model(folder, config, scale):
    """Writes a checkpoint by the rule and loads it the way a user would."""
    folder = Path(folder)
    (folder / "config.json").write_text(json.dumps(config))
    parsed = AutoConfig.from_pretrained(folder)
    blank = AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
    tied = set(blank._tied_weights_keys or ()) if config["tie_word_embeddings"] else set()
    tensors = []
    for name, value in blank.state_dict().items():
        if name not in tied:
            offset, factor = rule(name, scale)
            tensors.append({"name": name, "shape": list(value.shape), "offset": offset,
                            "scale": factor})
    save_file({t["name"]: generate(**t) for t in tensors}, folder / "model.safetensors",
              metadata={"format": "pt"})
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info.values()), info
    stored = model.state_dict()
    for t in tensors:
        assert np.array_equal(stored[t["name"]].numpy(), generate(**t)), t
    assert model.config._attn_implementation == "eager"
    return model.eval(), tensors


def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def greedy_of(model, ids, count):
    ids, tokens, margins = list(ids), [], []
    for _ in range(count):
        last = logits_of(model, ids)[-1]
        order = np.argsort(-last, kind="stable")
        tokens.append(int(order[0]))
        margins.append(short(last[order[0]] - last[order[1]]))
        ids.append(tokens[-1])
    return tokens, margins


def tiny_prompts(name, vocab):
    def draw(label, count):
        return [int(fnv1a64(f"{name}/{label}/{i}") >> 20) % vocab for i in range(count)]
    return [draw("a", 5), draw("b", 1), draw("c", 12)]


def dump_tiny(path, value):
    """JSON with one line per tensor, prompt and position."""
    def compact(item):
        return json.dumps(item, separators=(",", ":"))
    parts = []
    for key, item in value.items():
        if key == "tensors":
            text = "[\n" + ",\n".join("  " + compact(t) for t in item) + "\n ]"
        elif key == "logits":
            text = "[\n" + ",\n".join(
                "  [\n" + ",\n".join("   " + compact(row) for row in rows) + "\n  ]"
                for rows in item) + "\n ]"
        else:
            text = compact(item)
        parts.append(f' "{key}": {text}')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def make_tiny(name):
    config, scale, changes = TINY[name]
    prompts = tiny_prompts(name, config["vocab_size"])
    with tempfile.TemporaryDirectory() as folder:
        model, tensors = tiny_model(folder, config, scale)
    logits = [logits_of(model, ids) for ids in prompts]
    tokens, margins = greedy_of(model, prompts[0], 16)
    cached = model.generate(torch.tensor([prompts[0]]), max_new_tokens=16, min_new_tokens=16,
                            do_sample=False, use_cache=True, eos_token_id=None,
                            attention_mask=torch.ones(1, len(prompts[0]), dtype=torch.long))
    assert cached[0, len(prompts[0]):].tolist() == tokens, "with the key-value cache"
    differs = {}
    for what, keys in changes.items():
        with tempfile.TemporaryDirectory() as folder:
            other, _ = tiny_model(folder, {**config, **keys}, scale)
        differs[what] = short(np.abs(logits_of(other, prompts[2]) - logits[2]).max())
        assert differs[what] > 0.05, (name, what, differs)
    probe = tensors[0]
    values = generate(**probe)
    dump_tiny(HERE / "tiny" / f"{name}.json", {
        "name": name,
        "made_with": VERSIONS,
        "config": config,
        "scales": {"matrices": {"offset": 0.0, "scale": scale},
                   "*norm.weight": {"offset": 1.0, "scale": 0.25},
                   "*.bias": {"offset": 0.0, "scale": 0.5}},
        "tensors": tensors,
        "checksum": {"name": probe["name"], "first": short(values.flat[0]),
                     "last": short(values.flat[-1]),
                     "crc32": zlib.crc32(values.astype("<f4").tobytes())},
        "prompts": prompts,
        "logits": [[[short(v) for v in row] for row in rows] for rows in logits],
        "greedy": tokens,
        "greedy_margins": margins,
        "differs": differs,
    })
    spread = np.std(np.concatenate(logits))
    print(f"{name:20} logits std {spread:.3f}, smallest greedy margin {min(margins):.4f}, "
          f"{len(set(tokens))} different tokens, differs {differs}")


PROMPTS = [
    ("prose", "The old lighthouse stood at the edge of the cliff, its lamp long since gone dark. "
              "Every evening, Mara walked up the narrow path with a basket of bread and a book, "
              "and she sat beneath the broken window to read until the light failed. One autumn "
              "night she heard footsteps on the stairs above her, and"),
    ("code", "#include <vector>\n\n// Returns the index of the largest element, or -1 if the "
             "vector is empty.\nint argmax(const std::vector<float>& values) {\n    if "
             "(values.empty()) {\n        return -1;\n    }\n    int best = 0;\n    for (int i = "
             "1; i < static_cast<int>(values.size()); ++i) {\n"),
    ("digits", "Invoice 2024-08-31 no. 0047193: 12 x 19.99 = 239.88, 7 x 1,250.00 = 8750.00, "
               "VAT 20% = 1797.976; total 10787.856. Pi is 3.14159265358979, phone +44 20 7946 "
               "0958, 0xDEADBEEF, 2^31-1 = 2147483647"),
    ("languages", "Guten Morgen! Wie geht's dir heute? Привет, мир. 今日は天気がいいですね。"
                  "좋은 아침 ☀️😀👩‍👩‍👧‍👦 — naïve café, año, ½ ≠ ⅓, مرحبا"),
]

TOKENIZER_TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", "\t\tx", "Hello", " Hello", "Hello, world!", "hello   world  ",
    "I'm you're we've he'll she'd it's DON'T 'tis", "a_b-c.d/e\\f", "x=1234567.89e-10",
    "a 12b 3", "١٢٣ ٤ ½ ² Ⅷ 〇 五", "  leading\n\n\ttabs  \r\n trailing  ", "naïve café e\u0301",
    "東京は日本の首都です。", "한국어", "Здравствуйте", "שלום עולם", "😀👩\u200d👩\u200d👧🇩🇪",
    "\u00a0nbsp\u2003em\u3000wide\u200bzero", "soft\u00adhyphen \u2028line \u0085nel",
    "a\u0000b\u0001c\u007f", "missing \u0004\u0006\u0013\u0014\u0016\u001d bytes",
    "\U0001043c \U00010348 \U000e0001", "<|im_start|>user\nhi there<|im_end|>\n",
    "<|im_end|><|endoftext|>x<repo_name><|im_startx|>", "word<|im_end|> word", "<file_sep>1 2",
    "The quick brown fox jumps over the lazy dog. " * 3, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "----------------------------------------", "\n    return x\n        y", "C++20/C#/F# #1 @2x",
    "https://example.org/a?b=c&d=%20#e", "“quotes” ‘single’ … – —",
]

CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "You are terse."},
     {"role": "user", "content": "Hi"},
     {"role": "assistant", "content": "Hello."},
     {"role": "user", "content": "Count to 3."}],
]


def make_smollm2(folder):
    folder = Path(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info.values()), info
    model.eval()
    raw = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = []
    for index, (kind, text) in enumerate(PROMPTS):
        ids = tokenizer(text)["input_ids"]
        assert raw.encode(text).ids == ids and tokenizer.decode(ids) == text
        logits = logits_of(model, ids)
        last = logits[-1]
        order = np.argsort(-last, kind="stable")[:10]
        tops = logits.argmax(axis=1)
        entry = {"kind": kind, "text": text, "ids": ids,
                 "last_logits": [short(v) for v in last[::97]],
                 "last_top10": [[int(i), short(last[i])] for i in order],
                 "top1": [[int(i), short(row[i])] for i, row in zip(tops, logits)]}
        if index < 2:
            tokens, margins = greedy_of(model, ids, 64)
            cached = model.generate(torch.tensor([ids]), max_new_tokens=64, min_new_tokens=64,
                                    do_sample=False, use_cache=True, eos_token_id=None,
                                    pad_token_id=2,
                                    attention_mask=torch.ones(1, len(ids), dtype=torch.long))
            assert cached[0, len(ids):].tolist() == tokens, "with the key-value cache"
            entry |= {"greedy": tokens, "greedy_text": tokenizer.decode(tokens),
                      "greedy_margins": margins}
            print(kind, "smallest margin", min(margins), repr(entry["greedy_text"]))
        prompts.append(entry)
        print(kind, len(ids), "ids, next", repr(tokenizer.decode([int(order[0])])))
    texts = []
    for text in TOKENIZER_TEXTS:
        ids = tokenizer(text)["input_ids"]
        assert raw.encode(text).ids == ids
        texts.append({"text": text, "ids": ids, "decoded": raw.decode(ids, False)})
    chats = [{"messages": m, "add_generation_prompt": True,
              "text": tokenizer.apply_chat_template(m, tokenize=False,
                                                    add_generation_prompt=True)} for m in CHATS]
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    head = {"name": "smollm2_135m", "made_with": VERSIONS, "model_sha256": digest,
            "vocab_stride": 97}

    def lines(items):
        return "[\n" + ",\n".join(
            "  {" + ",\n   ".join(f"{json.dumps(k)}: "
                                  f"{json.dumps(v, separators=(',', ':'))}"
                                  for k, v in item.items()) + "}" for item in items) + "\n ]"
    text = "{\n" + "".join(f' "{k}": {json.dumps(v)},\n' for k, v in head.items())
    text += f' "prompts": {lines(prompts)},\n "tokenizer": {lines(texts)},\n'
    text += f' "chat": {lines(chats)}\n}}\n'
    json.loads(text)
    (HERE / "smollm2_135m.json").write_text(text)


def main():
    parser = argparse.ArgumentParser(description="See the text at the top of this file.")
    parts = parser.add_subparsers(dest="part", required=True)
    tiny = parts.add_parser("tiny", help="write tiny/*.json")
    tiny.add_argument("--only", choices=sorted(TINY))
    smollm2 = parts.add_parser("smollm2", help="write smollm2_135m.json")
    smollm2.add_argument("folder", help="what tools/get-model printed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with torch.no_grad():
        if options.part == "smollm2":
            make_smollm2(options.folder)
        else:
            (HERE / "tiny").mkdir(exist_ok=True)
            for name in [options.only] if options.only else TINY:
                make_tiny(name)


if __name__ == "__main__":
    main()
