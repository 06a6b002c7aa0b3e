"""Real models and real cards, every constant with its source.

Model shapes are those of the publisher's ``config.json``; the published total of parameters is
that of the checkpoint's safetensors header, and a test recomputes it from the shape.

Card figures are *dense*: NVIDIA's datasheets of Ada and Hopper cards print tensor-core rates with
2:4 structured sparsity, which is twice the dense rate. Bandwidth is in vendors' decimal GB/s.
Memory is what a program sees (``torch.cuda.get_device_properties``, ``nvidia-smi``), not what the
box says: '40 GB' of HBM is 40 GiB less what the driver keeps.
"""

from __future__ import annotations

from minillm_serve.sim.shapes import Hardware, LatentShape, ModelShape
from minillm_serve.sim.units import GB, GiB, MiB

_TERA = 1e12

LLAMA_2_7B = ModelShape(
    name="Llama-2-7B",
    num_layers=32,
    hidden_size=4096,
    intermediate_size=11008,
    num_heads=32,
    num_kv_heads=32,  # plain multi-head attention: every query head has its own K and V
    head_dim=128,
    vocab_size=32000,
    tie_word_embeddings=False,
    source="meta-llama/Llama-2-7b-hf config.json; Touvron et al., Llama 2, 2023",
    year=2023,
    published_parameters=6_738_415_616,
)

LLAMA_3_8B = ModelShape(
    name="Llama-3-8B",
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    tie_word_embeddings=False,
    source="meta-llama/Meta-Llama-3-8B config.json; Grattafiori et al., Llama 3, 2024",
    year=2024,
    published_parameters=8_030_261_248,
)

LLAMA_3_70B = ModelShape(
    name="Llama-3-70B",
    num_layers=80,
    hidden_size=8192,
    intermediate_size=28672,
    num_heads=64,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    tie_word_embeddings=False,
    source="meta-llama/Meta-Llama-3-70B config.json; Grattafiori et al., Llama 3, 2024",
    year=2024,
    published_parameters=70_553_706_496,
)

# v0.1 also has a sliding window of 4096 tokens in every layer: a sequence then never holds more
# than 4096 tokens of KV. The shape below gives bytes per token; the window caps the tokens.
MISTRAL_7B = ModelShape(
    name="Mistral-7B",
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=32000,
    tie_word_embeddings=False,
    source="mistralai/Mistral-7B-v0.1 config.json; Jiang et al., Mistral 7B, 2023",
    year=2023,
    published_parameters=7_241_732_096,
)

# Qwen2-7B (2024) has the same shape and the same total.
QWEN2_5_7B = ModelShape(
    name="Qwen2.5-7B",
    num_layers=28,
    hidden_size=3584,
    intermediate_size=18944,
    num_heads=28,
    num_kv_heads=4,
    head_dim=128,
    vocab_size=152064,
    tie_word_embeddings=False,
    qkv_bias=True,
    source="Qwen/Qwen2.5-7B config.json (same shape as Qwen/Qwen2-7B); Qwen2.5 report, 2024",
    year=2024,
    published_parameters=7_615_616_512,
)

# The checkpoint of Qwen3-0.6B stores the tied table twice (751,632,384 numbers on disk); the
# model has 596,049,920 different ones, 'Number of Parameters: 0.6B' on its card.
QWEN3_0_6B = ModelShape(
    name="Qwen3-0.6B",
    num_layers=28,
    hidden_size=1024,
    intermediate_size=3072,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,  # 16 heads of 128 make 2048, twice the hidden size: D is a choice of its own
    vocab_size=151936,
    tie_word_embeddings=True,
    qk_norm=True,
    source="Qwen/Qwen3-0.6B config.json; Yang et al., Qwen3 report, 2025",
    year=2025,
    published_parameters=596_049_920,
)

QWEN3_8B = ModelShape(
    name="Qwen3-8B",
    num_layers=36,
    hidden_size=4096,
    intermediate_size=12288,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=151936,
    tie_word_embeddings=False,
    qk_norm=True,
    source="Qwen/Qwen3-8B config.json; Yang et al., Qwen3 report, 2025",
    year=2025,
    published_parameters=8_190_735_360,
)

SMOLLM2_135M = ModelShape(
    name="SmolLM2-135M",
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    tie_word_embeddings=True,
    source="HuggingFaceTB/SmolLM2-135M-Instruct config.json; Ben Allal et al., SmolLM2, 2025",
    year=2024,
    published_parameters=134_515_008,
)

# MLA: DeepSeek-V2 paper (2024), section 3.1.2: 60 layers, 128 heads of 128, d_c = 512, d_h^R = 64;
# deepseek-ai/DeepSeek-V3 config.json: 61 layers, kv_lora_rank 512, qk_rope_head_dim 64.
DEEPSEEK_V2 = LatentShape(
    name="DeepSeek-V2",
    num_layers=60,
    kv_lora_rank=512,
    rope_dim=64,
    num_heads=128,
    head_dim=128,
    source="DeepSeek-AI, DeepSeek-V2, 2024, section 3.1.2",
    year=2024,
)
DEEPSEEK_V3 = LatentShape(
    name="DeepSeek-V3",
    num_layers=61,
    kv_lora_rank=512,
    rope_dim=64,
    num_heads=128,
    head_dim=128,
    source="deepseek-ai/DeepSeek-V3 config.json; DeepSeek-AI, DeepSeek-V3 report, 2024",
    year=2024,
)

MODELS: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        SMOLLM2_135M,
        QWEN3_0_6B,
        LLAMA_2_7B,
        MISTRAL_7B,
        QWEN2_5_7B,
        LLAMA_3_8B,
        QWEN3_8B,
        LLAMA_3_70B,
    )
}
LATENT_MODELS: dict[str, LatentShape] = {s.name: s for s in (DEEPSEEK_V2, DEEPSEEK_V3)}

# A100 datasheet (NVIDIA, 2021): fp16 tensor 312 TFLOPS dense (624 sparse), fp32 19.5,
# 1,555 GB/s (40 GB) and 2,039 GB/s (80 GB SXM). Memory seen: deviceQuery prints 42,405,855,232
# bytes for the 40 GB SXM card (PC2 Paderborn documentation); PyTorch's out-of-memory message says
# 'total capacity of 79.25 GiB' for the 80 GB one.
A100_40GB = Hardware(
    name="A100 40GB",
    memory_bytes=42_405_855_232,
    bandwidth_bytes_s=1555 * GB,
    flops_fp16_dense=312 * _TERA,
    flops_fp32=19.5 * _TERA,
    source="NVIDIA A100 datasheet, 2021; memory: CUDA deviceQuery",
    year=2020,
    advertised_gb=40,
)
A100_80GB = Hardware(
    name="A100 80GB",
    memory_bytes=round(79.25 * GiB),
    bandwidth_bytes_s=2039 * GB,
    flops_fp16_dense=312 * _TERA,
    flops_fp32=19.5 * _TERA,
    source="NVIDIA A100 datasheet, 2021; memory: torch.cuda",
    year=2020,
    advertised_gb=80,
)

# H100 SXM5 (NVIDIA H100 whitepaper, 2022, and datasheet): bf16 tensor 989.4 TFLOPS dense (the
# datasheet's 1,979 is with sparsity), fp32 66.9, 3.35 TB/s. torch.cuda reports 81,090 MiB.
H100_SXM = Hardware(
    name="H100 SXM",
    memory_bytes=81_090 * MiB,
    bandwidth_bytes_s=3350 * GB,
    flops_fp16_dense=989.4 * _TERA,
    flops_fp32=66.9 * _TERA,
    source="NVIDIA H100 whitepaper and datasheet, 2022-2023; memory: torch.cuda",
    year=2022,
    advertised_gb=80,
)

# H200 SXM (NVIDIA H200 datasheet, 2023-2024): the H100's chip with 141 GB of HBM3e at 4.8 TB/s.
# torch.cuda reports 143,156 MiB.
H200_SXM = Hardware(
    name="H200 SXM",
    memory_bytes=143_156 * MiB,
    bandwidth_bytes_s=4800 * GB,
    flops_fp16_dense=989.4 * _TERA,
    flops_fp32=66.9 * _TERA,
    source="NVIDIA H200 datasheet, 2024; memory: torch.cuda",
    year=2023,
    advertised_gb=141,
)

# L4 (NVIDIA L4 datasheet, 2023): fp16 tensor 242 TFLOPS with sparsity, so 121 dense; fp32 30.3;
# 300 GB/s. nvidia-smi reports 23,034 MiB (ECC is on by default and takes its share).
L4 = Hardware(
    name="L4",
    memory_bytes=23_034 * MiB,
    bandwidth_bytes_s=300 * GB,
    flops_fp16_dense=121 * _TERA,
    flops_fp32=30.3 * _TERA,
    source="NVIDIA L4 datasheet, 2023; memory: nvidia-smi",
    year=2023,
    advertised_gb=24,
)

# GeForce RTX 4090 (NVIDIA Ada architecture whitepaper, 2022): fp16 tensor with fp32 accumulation
# 165.2 TFLOPS dense (330.3 with fp16 accumulation or sparsity), fp32 82.6, 1,008 GB/s.
# torch.cuda reports 24,563 MiB.
RTX_4090 = Hardware(
    name="RTX 4090",
    memory_bytes=24_563 * MiB,
    bandwidth_bytes_s=1008 * GB,
    flops_fp16_dense=165.2 * _TERA,
    flops_fp32=82.6 * _TERA,
    source="NVIDIA Ada GPU architecture whitepaper, 2022; memory: torch.cuda",
    year=2022,
    advertised_gb=24,
)

HARDWARE: dict[str, Hardware] = {
    card.name: card for card in (L4, RTX_4090, A100_40GB, A100_80GB, H100_SXM, H200_SXM)
}
