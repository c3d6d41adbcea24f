#!/usr/bin/env python3
"""Every #include "FOLDER/..." of the tree is an arrow of the picture in README.md, and the fenced libraries stay in.

Usage: layering_test.py SOURCE_DIR
"""
import pathlib
import re
import sys

ARROWS = {
    "schema": {"schema"},
    "passes": {"passes", "schema"},
    "kernels": {"kernels", "schema"},
    "compiler": {"compiler", "passes", "schema"},
    "runtime": {"runtime", "kernels", "schema"},
    "examples": {"passes", "schema"},
    "tests": {"tests", "compiler", "passes", "runtime", "kernels", "schema"},
}

# A library's headers, and the files that may include them.
FENCES = {
    r"flatbuffers/|schema/pack_generated\.h": r"schema/pack_decode\.cc|compiler/pack_encode\.cc",
    r"xxhash\.h|xxh_x86dispatch\.h": r"schema/hash\.cc",
    r"zstd\.h": r"schema/zstd\.cc",
    r"CLI/": r"(compiler|runtime)/command_line\.cc",
    r"curl/": r"compiler/remote_(address|transfer|header)\.(h|cc)",
    r"liburing\.h": r"runtime/read_queue\.cc",
    r"pcre2\.h": r"runtime/pre_tokenizer\.cc",
    r"hwy/": r"kernels/.*|schema/float_product\.cc|schema/highway_targets\.h|tests/kernels/.*",
    r"Eigen/": r"passes/water_filling\.cc|tests/bench/.*",
    r"simdjson\.h": r"(schema|compiler|runtime)/.*\.cc|tests/.*",
    r"cuda_runtime(_api)?\.h": r"(kernels|runtime)/.*cuda.*|tests/(gpu|emulated_gpu)/.*",
    r"tbb/": r"(passes|compiler|runtime)/.*|kernels/.*_cpu\.cc|kernels/parallel\.h|tests/.*",
}

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


def faults(root):
    files = [p for p in root.rglob("*") if p.suffix in {".h", ".cc", ".cu"} and "build" not in p.relative_to(root).parts]
    if not files:
        yield f"{root}: no sources found"
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        folder = name.split("/")[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            to = target.split("/")[0]
            if to in ARROWS and folder in ARROWS and to not in ARROWS[folder]:
                yield f"{name}:{number}: {folder} may not include {to} ({target})"
            for library, allowed in FENCES.items():
                if re.match(library, target) and not re.fullmatch(allowed, name):
                    yield f"{name}:{number}: {target} is fenced into {allowed}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "all includes follow the picture")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
