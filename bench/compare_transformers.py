#!/usr/bin/env python3
"""Times one decision with transformers on this machine's CPU or GPU, for comparison with `dgem bench engine`.

Builds DiffusionGemma at the sizes of a config (text_config only, like reference/real_config.json) with random bf16
weights, then times the prefill of a prompt and one decoder pass over a canvas, batch 1, as generate() runs them. The
vocabulary can be cut (--vocab), which makes the comparison kinder to transformers: its head computes all logits.

Needs torch and transformers >= 5.17. Prints medians, in milliseconds, as one JSON line per way of running experts.
"""
import argparse, json, statistics, time
import torch
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion, DynamicCache
from transformers.models.diffusion_gemma.configuration_diffusion_gemma import DiffusionGemmaTextConfig


def fill(model):
    """Random weights, fast: one block of normal numbers copied over every matrix, ones elsewhere."""
    block = (torch.randn(1 << 24) * 0.02).to(torch.bfloat16)
    with torch.no_grad():
        for t in list(model.parameters()) + list(model.buffers()):
            if not t.is_floating_point() or t.dtype != torch.bfloat16:
                continue
            if t.dim() < 2:
                t.fill_(1.0)
                continue
            flat = t.view(-1)
            for i in range(0, flat.numel(), block.numel()):
                part = flat[i:i + block.numel()]
                part.copy_(block[:part.numel()])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--config", required=True)
    ap.add_argument("--prompt", type=int, default=256)
    ap.add_argument("--canvas", type=int, default=32)
    ap.add_argument("--layers", type=int)
    ap.add_argument("--vocab", type=int)
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--experts", default="grouped_mm,eager", help="implementations to try, comma-separated")
    a = ap.parse_args()
    text = json.load(open(a.config))["text_config"]
    if a.layers:
        text["num_hidden_layers"] = a.layers
        text.pop("layer_types", None)
    if a.vocab:
        text["vocab_size"] = a.vocab
    vision = dict(model_type="gemma4_vision", hidden_size=48, intermediate_size=80, num_hidden_layers=1, num_attention_heads=4,
                  num_key_value_heads=4, head_dim=16, patch_size=4, pooling_kernel_size=2, position_embedding_size=64)
    v = text["vocab_size"]
    cfg = DiffusionGemmaConfig(text_config=DiffusionGemmaTextConfig(**text), vision_config=vision, canvas_length=256,
                               image_token_id=v - 4, boi_token_id=v - 3, eoi_token_id=v - 2)
    torch.manual_seed(1)
    start = time.time()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = DiffusionGemmaForBlockDiffusion(cfg)
    rotary = [m for m in model.modules() if "RotaryEmbedding" in type(m).__name__]
    model.to_empty(device=a.device)
    model.tie_weights()
    fill(model)
    for m in rotary:  # to_empty() left their tables undefined
        try:
            m.__init__(m.config, device=a.device)
        except TypeError:
            m.__init__(m.config)
    model.eval()
    torch.set_default_dtype(torch.float32)
    print(json.dumps({"built_s": round(time.time() - start, 1), "threads": torch.get_num_threads(),
                      "torch": torch.__version__}), flush=True)

    ids = torch.randint(3, v - 8, (1, a.prompt), device=a.device)
    canvas = torch.randint(0, v, (1, a.canvas), device=a.device)
    positions = torch.arange(a.prompt, device=a.device)[None]
    sync = torch.cuda.synchronize if a.device != "cpu" else (lambda: None)

    def decision():
        with torch.no_grad():
            t0 = time.perf_counter()
            cache = DynamicCache(config=cfg.text_config)
            mask = model.model.encoder.create_masks_for_generate(
                config=cfg, inputs_embeds=torch.empty((1, a.prompt, 0), dtype=torch.bfloat16, device=a.device),
                attention_mask=None, past_key_values=cache, position_ids=positions, mm_token_type_ids=None)
            model.model.encoder(input_ids=ids, attention_mask=mask, past_key_values=cache, position_ids=positions)
            sync()
            t1 = time.perf_counter()
            model(past_key_values=cache, decoder_input_ids=canvas).logits[0, 0].float().cpu()
            sync()
            return t1 - t0, time.perf_counter() - t1

    for experts in a.experts.split(","):
        try:
            model.set_experts_implementation(experts)
            decision()
            runs = [decision() for _ in range(a.runs)]
        except Exception as error:  # an implementation that this version or device does not have
            print(json.dumps({"experts": experts, "error": repr(error)[:300]}), flush=True)
            continue
        prefill, read = (statistics.median(r[i] for r in runs) for i in (0, 1))
        print(json.dumps({"experts": experts, "prompt": a.prompt, "canvas": a.canvas, "runs": a.runs,
                          "prefill_ms": round(prefill * 1e3, 1), "read_ms": round(read * 1e3, 1),
                          "total_ms": round(statistics.median(sum(r) for r in runs) * 1e3, 1)}), flush=True)


main()
