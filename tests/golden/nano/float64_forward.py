#!/usr/bin/env python3
"""A second, independent forward pass of nano in float64, from kimi-k3's published mathematics and numpy alone.

The goldens in golden.safetensors were computed in float32. Where the residual stream reaches 300, float32 rounding alone
has moved them by up to 3e-4, so they cannot judge an implementation to 1e-4 there. This script can: it writes the
stream and the logits of the same prompts, computed in float64 throughout and rounded once.

    python3 float64_forward.py CHECKPOINT golden.safetensors float64.safetensors     (needs numpy; tests do not run it)
"""
import glob
import json
import struct
import sys

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    for name, entry in json.loads(data[8 : 8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        elif entry["dtype"] == "F32":
            values = np.frombuffer(raw, np.float32).astype(np.float64)
        else:
            values = np.frombuffer(raw, {"U8": np.uint8, "I32": np.int32}[entry["dtype"]])
        yield name, values.reshape(entry["shape"])


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms_norm(x, weight, epsilon=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def situ(gate, up):
    return 4 * np.tanh(gate / 4) * sigmoid(gate) * 25 * np.tanh(up / 25)


class Nano:
    LAYERS, BLOCK, MLA_LAYERS = 8, 3, (3, 7)
    KDA_HEADS, KDA_DIM = 4, 64
    MLA_HEADS, CONTENT, EXTRA, VALUE, LATENT = 4, 32, 16, 32, 64
    EXPERTS_PER_TOKEN = 4

    def __init__(self, folder):
        self.tensors = {}
        for path in sorted(glob.glob(folder + "/*.safetensors")):
            for name, values in read_safetensors(path):
                self.tensors[name.removeprefix("language_model.")] = values

    def __getitem__(self, name):
        return self.tensors[name]

    def mxfp4(self, name):
        packed, scale = self[name + ".weight_packed"], self[name + ".weight_scale"]
        codes = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
        return E2M1[codes] * np.repeat(np.ldexp(1.0, scale.astype(int) - 127), 32, axis=1)

    def mlp(self, prefix, x):
        inner = situ(x @ self[prefix + "gate_proj.weight"].T, x @ self[prefix + "up_proj.weight"].T)
        return inner @ self[prefix + "down_proj.weight"].T

    def mix(self, stream, snapshots, name):
        sources = np.stack(snapshots + [stream])
        keys = rms_norm(sources, self[name + "_norm.weight"])
        scores = keys @ self[name + "_proj.weight"][0]
        shares = np.exp(scores - scores.max(0))
        shares /= shares.sum(0)
        return (shares[..., None] * sources).sum(0)

    def kda(self, prefix, x):
        tokens = len(x)

        def convolved(which):
            u = x @ self[prefix + which + "_proj.weight"].T
            taps = self[prefix + which + "_conv1d.weight"][:, 0, :]
            padded = np.concatenate([np.zeros((taps.shape[1] - 1, u.shape[1])), u])
            y = sum(padded[j : j + tokens] * taps[:, j] for j in range(taps.shape[1]))
            return (y * sigmoid(y)).reshape(tokens, self.KDA_HEADS, self.KDA_DIM)

        def normalised(z):
            return z / np.sqrt((z * z).sum(-1, keepdims=True) + 1e-6)

        q, k, v = normalised(convolved("q")) * self.KDA_DIM**-0.5, normalised(convolved("k")), convolved("v")
        z = x @ self[prefix + "f_a_proj.weight"].T @ self[prefix + "f_b_proj.weight"].T + self[prefix + "dt_bias"]
        a = np.exp(self[prefix + "A_log"][: self.KDA_HEADS])[:, None]
        decay = np.exp(-5 * sigmoid(a * z.reshape(q.shape)))
        beta = sigmoid(x @ self[prefix + "b_proj.weight"].T)
        state = np.zeros((self.KDA_HEADS, self.KDA_DIM, self.KDA_DIM))
        out = np.zeros_like(v)
        for t in range(tokens):
            state *= decay[t][:, :, None]
            u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
            state += k[t][:, :, None] * u[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", state, q[t])
        out = rms_norm(out, self[prefix + "o_norm.weight"]).reshape(tokens, -1)
        return out * sigmoid(x @ self[prefix + "g_proj.weight"].T) @ self[prefix + "o_proj.weight"].T

    def mla(self, prefix, x):
        tokens = len(x)
        low = rms_norm(x @ self[prefix + "q_a_proj.weight"].T, self[prefix + "q_a_layernorm.weight"])
        q = (low @ self[prefix + "q_b_proj.weight"].T).reshape(tokens, self.MLA_HEADS, self.CONTENT + self.EXTRA)
        compressed = x @ self[prefix + "kv_a_proj_with_mqa.weight"].T
        extra = compressed[:, self.LATENT :]
        latent = rms_norm(compressed[:, : self.LATENT], self[prefix + "kv_a_layernorm.weight"])
        kv = (latent @ self[prefix + "kv_b_proj.weight"].T).reshape(tokens, self.MLA_HEADS, self.CONTENT + self.VALUE)
        scores = np.einsum("thd,shd->hts", q[..., : self.CONTENT], kv[..., : self.CONTENT])
        scores += np.einsum("thd,sd->hts", q[..., self.CONTENT :], extra)
        scores *= (self.CONTENT + self.EXTRA) ** -0.5
        scores = np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        out = np.einsum("hts,shd->thd", shares, kv[..., self.CONTENT :]).reshape(tokens, -1)
        return out * sigmoid(x @ self[prefix + "g_proj.weight"].T) @ self[prefix + "o_proj.weight"].T

    def moe(self, prefix, x):
        scores = sigmoid(x @ self[prefix + "gate.weight"].T)
        chosen = np.argsort(-(scores + self[prefix + "gate.e_score_correction_bias"]), axis=1)
        chosen = chosen[:, : self.EXPERTS_PER_TOKEN]
        z = x @ self[prefix + "routed_expert_down_proj.weight"].T
        routed = np.zeros_like(z)
        for t, experts in enumerate(chosen):
            weights = scores[t, experts] / (scores[t, experts].sum() + 1e-20)
            for weight, expert in zip(weights, experts):
                name = f"{prefix}experts.{expert}."
                inner = situ(self.mxfp4(name + "w1") @ z[t], self.mxfp4(name + "w3") @ z[t])
                routed[t] += weight * (self.mxfp4(name + "w2") @ inner)
        routed = rms_norm(routed, self[prefix + "routed_expert_norm.weight"])
        return routed @ self[prefix + "routed_expert_up_proj.weight"].T + self.mlp(prefix + "shared_experts.", x)

    def forward(self, ids):
        """Logits [tokens, vocab] and the stream after each layer [layers, tokens, hidden]."""
        stream, snapshots, hidden = self["model.embed_tokens.weight"][ids], [], []
        for layer in range(self.LAYERS):
            prefix = f"model.layers.{layer}."
            x = self.mix(stream, snapshots, prefix + "self_attention_res") if snapshots else stream
            starts_block = layer % self.BLOCK == 0
            if starts_block:
                snapshots.append(stream)
            attention = self.mla if layer in self.MLA_LAYERS else self.kda
            y = attention(prefix + "self_attn.", rms_norm(x, self[prefix + "input_layernorm.weight"]))
            stream = y if starts_block else stream + y
            x = self.mix(stream, snapshots, prefix + "mlp_res")
            x = rms_norm(x, self[prefix + "post_attention_layernorm.weight"])
            stream = stream + (self.moe(prefix + "block_sparse_moe.", x) if layer else self.mlp(prefix + "mlp.", x))
            hidden.append(stream)
        x = self.mix(stream, snapshots, "model.output_attn_res")
        return rms_norm(x, self["model.norm.weight"]) @ self["lm_head.weight"].T, np.stack(hidden)


def main():
    folder, goldens, out = sys.argv[1:]
    goldens = dict(read_safetensors(goldens))
    nano = Nano(folder)
    results = {}
    for name in sorted(goldens):
        if name.endswith(".ids"):
            case = name.removesuffix(".ids")
            results[case + ".logits"], results[case + ".hidden"] = nano.forward(goldens[name])
            for what in ("logits", "hidden"):
                distance = np.abs(results[f"{case}.{what}"] - goldens[f"{case}.{what}"]).max()
                print(f"{case}.{what}: the float32 golden is within {distance:.2e}")
    write_safetensors(out, results)


if __name__ == "__main__":
    main()
