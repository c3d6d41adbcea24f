#!/usr/bin/env python3
"""Prints a .k3teach file: read_teacher.py FILE. The reader that schema/README.md promises, in the standard library."""
import array
import json
import math
import sys


def read_teacher(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata = header.pop("__metadata__")
    arrays = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = array.array({"I32": "i", "F32": "f", "F64": "d"}[tensor["dtype"]])
        values.frombytes(data[begin:end])
        if sys.byteorder == "big":
            values.byteswap()
        arrays[name] = values
    return metadata, header["top_ids"]["shape"][1], arrays


def main():
    metadata, k, teacher = read_teacher(sys.argv[1])
    tokens = teacher["token_ids"]
    print(f"{metadata['model_payload_xxh3']}, {len(tokens)} tokens, top {k} of {metadata['vocab_size']}")
    for i, token in enumerate(tokens):
        ids = teacher["top_ids"][i * k : i * k + k]
        logits = teacher["top_logits"][i * k : i * k + k]
        rest = 1 - sum(math.exp(logit - teacher["log_sum_exp"][i]) for logit in logits)
        top = " ".join(f"{id}:{logit:.4f}" for id, logit in zip(ids, logits))
        print(f"document {teacher['document_ids'][i]} token {token}: {top}, the rest has {rest:.4f}")


if __name__ == "__main__":
    main()
