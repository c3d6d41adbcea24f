#!/usr/bin/env python3
"""What the compiler made of the products, without a GPU: registers, bytes of stack (spilled registers
are there) and instructions per weight, for each architecture in the object files of a build.

Usage: tests/gpu/instructions.py build/release/*_cuda.cu.o
Needs cuobjdump, of the CUDA Toolkit or of PyPI's nvidia-cuda-cuobjdump.

Instructions are those of a kernel's busiest loop, all of them. How many weights a turn takes follows from
what is in it: two dp4a for four integer weights, one fused multiply-add in double for a float weight, each
for every vector; one addition in double for a weight in the fp64 kernels, which decode by it.
"""
import collections
import re
import subprocess
import sys

# Pattern of the mangled name -> name in the table, instruction counted, weights for one of it.
FORMATS = {0: "f32", 1: "bf16", 2: "int8", 3: "mxfp4", 4: "ternary", 5: "ternary2"}
INTEGERS = re.compile(r"multiply_integersILNS_6FormatE(\d)ELi(\d)ELi(\d)E")
FLOATS = re.compile(r"multiply_floatsI([tf])Li(\d)E")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);")

Kernel = collections.namedtuple("Kernel", "order name counted weights")


def kernel_of(function):
    """How the table shows the function; None when it does not."""
    if found := INTEGERS.search(function):
        form, rows, vectors = map(int, found.groups())
        name = f"{FORMATS[form]}, {rows} row{'s' * (rows > 1)}, {vectors} vector{'s' * (vectors > 1)}"
        return Kernel((0, form, vectors, rows), name, "IDP", 2 / vectors)
    if found := FLOATS.search(function):
        form = 1 if found[1] == "t" else 0
        vectors = int(found[2])
        name = f"{FORMATS[form]}, {vectors} vector{'s' * (vectors > 1)}"
        return Kernel((0, form, vectors, 0), name, "DFMA", 1 / vectors)
    if "5audit" not in function and "multiply_gate_and_up" in function:
        return Kernel((1,), "experts: gate and up", "IDP", 2)
    if "5audit" not in function and "multiply_downE" in function:
        return Kernel((2,), "experts: down", "IDP", 2)
    return None


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def split_functions(text):
    """(architecture, function) -> its lines."""
    functions = collections.defaultdict(list)
    architecture = function = None
    for line in text.splitlines():
        if found := re.match(r"arch = (sm_\w+)", line):
            architecture, function = found[1], None
        elif found := re.match(r"\s*Function\s*:?\s*(\w+)", line):
            function = found[1]
        elif function:
            functions[architecture, function].append(line)
    return functions


def busiest_loop(lines, counted):
    """Instructions of the innermost loop with most of the counted one, and how many of it."""
    code = [(int(a, 16), op, rest) for a, op, rest in INSTRUCTION.findall("\n".join(lines))]
    best = (0, 0)
    for end, op, rest in code:
        target = re.search(r"0x([0-9a-f]+)", rest) if op.startswith("BRA") else None
        if not target or int(target[1], 16) >= end:
            continue
        body = [o for a, o, _ in code if int(target[1], 16) <= a <= end]
        count = sum(o.split(".")[0] == counted for o in body)
        if count > best[1] or (count == best[1] and len(body) < best[0]):
            best = (len(body), count)
    return best


def main(paths):
    cells = collections.defaultdict(dict)
    architectures = []
    for path in paths:
        resources = split_functions(run("cuobjdump", "-res-usage", path))
        code = split_functions(run("cuobjdump", "-sass", path))
        for (architecture, function), lines in code.items():
            kernel = kernel_of(function)
            if not kernel:
                continue
            if architecture not in architectures:
                architectures.append(architecture)
            usage = " ".join(resources[architecture, function])
            registers = re.search(r"REG:(\d+)", usage)[1]
            stack = re.search(r"STACK:(\d+)", usage)[1]
            body, count = busiest_loop(lines, kernel.counted)
            per_weight = f"{body / (count * kernel.weights):.2f}" if count else "unrolled"
            cells[kernel][architecture] = f"{registers}, {stack}, {per_weight}"
    if not cells:
        sys.exit("instructions.py: no kernel of the products in these files")
    print("| kernel |", " | ".join(architectures), "|")
    print("|---|" + "---|" * len(architectures))
    for kernel in sorted(cells):
        print(f"| {kernel.name} |", " | ".join(cells[kernel].get(a, "") for a in architectures), "|")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
