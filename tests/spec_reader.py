#!/usr/bin/env python3
"""Reads a .k3pack knowing nothing but schema/README.md: lists what it holds and checks frame, hashes and gaps.

It shares no code with the programs that write and read packs, uses the standard library alone, and has its own FlatBuffers walk and its own
XXH3-64. If this file and the C++ disagree, one of them or the document is wrong.

usage: spec_reader.py [--quiet] PACK
Prints one line per item and OK; or the first fault, and exits with status 1.
"""
import struct
import sys

FORMATS = ["f32", "bf16", "int8", "mxfp4", "ternary", "ternary2"]
BLOCK_BYTES = {"int8": [160], "ternary": [32], "ternary2": [32, 32]}  # of each plane of codes in blocks160
LAYOUTS = ["row_major", "blocks160", "expert_bands", "expert_bands_compact"]
FEATURE_ROTATION = 1
LARGEST_HADAMARD = 4096
PAGE = 4096
MASK = (1 << 64) - 1


class Fault(Exception):
    """The pack breaks a rule of the document."""


def require(condition, message):
    if not condition:
        raise Fault(message)


# XXH3-64 with seed 0 ------------------------------------------------------------------------------------------

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PMX1, PMX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def fold(a, b):
    product = a * b
    return (product ^ (product >> 64)) & MASK


def avalanche_xxh64(h):
    h = ((h ^ (h >> 33)) * P64_2) & MASK
    h = ((h ^ (h >> 29)) * P64_3) & MASK
    return h ^ (h >> 32)


def avalanche(h):
    h = ((h ^ (h >> 37)) * PMX1) & MASK
    return h ^ (h >> 32)


def mix16(data, at, secret_at):
    return fold(u64(data, at) ^ u64(SECRET, secret_at), u64(data, at + 8) ^ u64(SECRET, secret_at + 8))


def xxh3_short(data):
    """Up to 240 bytes."""
    n = len(data)
    if n == 0:
        return avalanche_xxh64(u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        combined = (data[0] << 16) | (data[n >> 1] << 24) | data[n - 1] | (n << 8)
        return avalanche_xxh64(combined ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    if n <= 8:
        value = u32(data, n - 4) + (u32(data, 0) << 32)
        h = value ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        h ^= ((h << 49) | (h >> 15)) & MASK ^ ((h << 24) | (h >> 40)) & MASK
        h = (h * PMX2) & MASK
        h = ((h ^ ((h >> 35) + n)) * PMX2) & MASK
        return h ^ (h >> 28)
    if n <= 16:
        low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
        high = u64(data, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche((n + swapped + high + fold(low, high)) & MASK)
    h = n * P64_1
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(h & MASK)
    for i in range(8):
        h += mix16(data, 16 * i, 16 * i)
    h = avalanche(h & MASK)
    for i in range(8, n // 16):
        h += mix16(data, 16 * i, 16 * (i - 8) + 3)
    h += mix16(data, n - 16, 136 - 17)
    return avalanche(h & MASK)


LANES = range(8)
STRIPES_PER_BLOCK = (192 - 64) // 8
STRIPE_KEYS = [struct.unpack_from("<8Q", SECRET, 8 * i) for i in range(STRIPES_PER_BLOCK)]
SCRAMBLE_KEYS = struct.unpack_from("<8Q", SECRET, 192 - 64)
LAST_KEYS = struct.unpack_from("<8Q", SECRET, 192 - 64 - 7)


def accumulate(acc, stripe, keys):
    for lane in LANES:
        value = stripe[lane]
        keyed = value ^ keys[lane]
        acc[lane ^ 1] += value
        acc[lane] += (keyed & 0xFFFFFFFF) * (keyed >> 32)


def xxh3(data):
    n = len(data)
    if n <= 240:
        return xxh3_short(bytes(data))
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    stripes = (n - 1) // 64
    unpack = struct.Struct("<8Q").unpack_from
    for first in range(0, stripes, STRIPES_PER_BLOCK):
        last = min(first + STRIPES_PER_BLOCK, stripes)
        for i in range(first, last):
            accumulate(acc, unpack(data, 64 * i), STRIPE_KEYS[i - first])
        # Sums stay far below Python's big-integer trouble: reduce once a block.
        if last - first == STRIPES_PER_BLOCK:
            for lane in LANES:
                a = acc[lane] & MASK
                acc[lane] = ((a ^ (a >> 47) ^ SCRAMBLE_KEYS[lane]) * P32_1) & MASK
    accumulate(acc, unpack(data, n - 64), LAST_KEYS)
    acc = [a & MASK for a in acc]
    h = n * P64_1
    for i in range(4):
        h += fold(acc[2 * i] ^ u64(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ u64(SECRET, 11 + 16 * i + 8))
    return avalanche(h & MASK)


# FlatBuffers --------------------------------------------------------------------------------------------------


class Buffer:
    """Bytes with checked reads: an offset that leaves them is a fault, not an exception of struct."""

    def __init__(self, data):
        self.data = data

    def read(self, form, at):
        size = struct.calcsize("<" + form)
        require(0 <= at <= len(self.data) - size, f"index: offset {at} leaves its buffer")
        return struct.unpack_from("<" + form, self.data, at)

    def bytes(self, at, size):
        require(0 <= at and 0 <= size <= len(self.data) - at, f"index: {size} bytes at {at} leave the buffer")
        return self.data[at:at + size]

    def root(self):
        return Table(self, self.read("I", 0)[0])


class Table:
    def __init__(self, buffer, at):
        self.buffer, self.at = buffer, at
        self.vtable = at - buffer.read("i", at)[0]
        self.vtable_bytes = buffer.read("H", self.vtable)[0]

    def place(self, field):
        slot = 4 + 2 * field
        if slot + 2 > self.vtable_bytes:
            return None
        offset = self.buffer.read("H", self.vtable + slot)[0]
        return self.at + offset if offset else None

    def scalar(self, field, form):
        at = self.place(field)
        return None if at is None else self.buffer.read(form, at)[0]

    def struct(self, field, form):
        at = self.place(field)
        require(at is not None, "index: a required struct is missing")
        return self.buffer.read(form, at)

    def follow(self, field):
        at = self.place(field)
        require(at is not None, "index: a required field is missing")
        return at + self.buffer.read("I", at)[0]

    def table(self, field):
        return Table(self.buffer, self.follow(field))

    def blob(self, field):
        at = self.follow(field)
        return self.buffer.bytes(at + 4, self.buffer.read("I", at)[0]), at + 4

    def string(self, field):
        return bytes(self.blob(field)[0]).decode("utf-8", "backslashreplace")

    def tables(self, field):
        at = self.follow(field)
        count = self.buffer.read("I", at)[0]
        self.buffer.bytes(at + 4, 4 * count)
        for i in range(count):
            slot = at + 4 + 4 * i
            yield Table(self.buffer, slot + self.buffer.read("I", slot)[0])

    def structs(self, field, form):
        at = self.follow(field)
        count = self.buffer.read("I", at)[0]
        size = struct.calcsize("<" + form)
        return list(struct.iter_unpack("<" + form, self.buffer.bytes(at + 4, size * count)))


# The pack -----------------------------------------------------------------------------------------------------


def up(value, alignment):
    return -(-value // alignment) * alignment


def row_bytes(form, cols):
    return {"f32": 4 * cols, "bf16": 2 * cols, "mxfp4": cols // 2}[form]


def tensor_bytes(form, layout, shape):
    if layout == "row_major" and form in ("f32", "bf16"):
        elements = 1
        for dim in shape:
            elements *= dim
        return row_bytes(form, elements)
    require(layout == "blocks160" and form in BLOCK_BYTES and len(shape) == 2, f"{form} in {layout} with shape {shape}")
    rows, cols = shape
    blocks = up(cols, 160) // 160
    codes = sum(up(rows * blocks * block, 64) for block in BLOCK_BYTES[form])
    return up(codes + rows * blocks, 64) + 4 * rows


def expert_bytes(form, layout, latent, inner):
    require((form, layout) in (("mxfp4", "expert_bands"), ("mxfp4", "expert_bands_compact"), ("bf16", "expert_bands")),
            f"experts are {form} in {layout}")

    def part(rows, cols):
        scales = rows * cols // 32 if form == "mxfp4" else 0
        return rows * row_bytes(form, cols) + (scales // 2 if layout == "expert_bands_compact" else scales)

    total = 0
    for first in range(0, inner, 256):
        width = min(256, inner - first)
        total += 2 * part(width, latent) + part(latent, width)
    return total


def name_of(names, value, what):
    require(value is not None and value < len(names), f"{what} {value} is not known")
    return names[value]


def read_frame(data):
    require(len(data) >= 64, "shorter than a frame")
    require(bytes(data[:8]) == b"\x89K3PACK\n", "magic does not match")
    version = u32(data, 8)
    require(version == 1, f"is version {version}, this program reads 1")
    require(u64(data, 56) == xxh3(data[:56]), "frame: hash does not match")
    require(u32(data, 12) == 64, "frame: its length is wrong")
    features = u64(data, 48)
    require(features & ~FEATURE_ROTATION == 0, f"needs features {features} of its reader, this program knows {FEATURE_ROTATION}")
    offset, length, digest, file_bytes = struct.unpack_from("<4Q", data, 16)
    require(file_bytes == len(data), f"frame says {file_bytes} bytes, the file has {len(data)}")
    require(offset >= PAGE and offset % PAGE == 0 and 0 < length < 1 << 31 and offset + length == file_bytes,
            f"index at {offset} + {length} does not end the file")
    return offset, length, digest, features


def check_rotation(config, has_mixtures):
    """Whether the config has a rotation, whose blocks then fit the vectors that they cut."""
    if config.place(34) is None:
        return False
    rotation = config.table(34)
    require(config.place(26) is not None or not has_mixtures, "rotation: the experts read the stream")

    def number(field):
        return config.scalar(field, "q") or 0

    widths = [
        number(0),  # the stream
        number(12),  # the query rank
        number(6) * number(7),  # KDA's heads
        number(11) * number(16),  # MLA's heads
        number(18),  # the dense MLP
        number(25) * number(24),  # the shared experts
        number(26),  # the experts' sum
    ]
    for field, width in enumerate(widths, 1):
        block = rotation.scalar(field, "q") or 0
        require(block >= 1 and block & (block - 1) == 0 and block <= LARGEST_HADAMARD, f"rotation: block {block}")
        require(block == 1 or width and width % block == 0, f"rotation: block {block} does not divide {width}")
    return True


def list_items(index, features):
    """Every extent as (what, offset, length, hash), and the payload hash."""
    items = []
    content_bytes, content_at = index.blob(0)
    require(content_at % 8 == 0, "content is not on an 8-byte boundary")
    content = Buffer(content_bytes).root()

    config = content.table(0)
    hidden = config.scalar(0, "q")
    latent = config.scalar(26, "q") or hidden
    inner = config.scalar(24, "q")
    is_rotated = check_rotation(config, any(True for _ in content.tables(2)))
    require(is_rotated == bool(features & FEATURE_ROTATION), "frame: does not state the features of the index")
    for tensor in content.tables(1):
        name = tensor.string(0)
        form = name_of(FORMATS, tensor.scalar(2, "B"), f"{name}: format")
        layout = name_of(LAYOUTS, tensor.scalar(3, "B"), f"{name}: layout")
        shape = [dim for dim, in tensor.structs(4, "q")]
        require(all(1 <= dim < 1 << 31 for dim in shape), f"{name}: shape {shape}")
        extent = tensor.struct(5, "3Q")
        want = tensor_bytes(form, layout, shape)
        require(extent[1] == want, f"{name}: has {extent[1]} bytes, shape and format make {want}")
        items.append((f"{name} {form} {layout} {shape}", *extent))
    for bank in content.tables(2):
        layer = bank.scalar(0, "q")
        form = name_of(FORMATS, bank.scalar(1, "B"), f"bank {layer}: format")
        layout = name_of(LAYOUTS, bank.scalar(2, "B"), f"bank {layer}: layout")
        want = expert_bytes(form, layout, latent, inner)
        source_experts = bank.scalar(3, "q")
        seen = set()
        hot = 0
        for offset, length, digest, source_id, *least, cold in bank.structs(5, "3QI4B"):
            require(cold == 1 or cold == 0 and hot == len(seen), f"layer {layer} expert {source_id}: cold is {cold}")
            hot += 1 - cold
            require(layout != "expert_bands_compact" or max(least) <= 239, f"layer {layer} expert {source_id}: least exponent")
            require(length == want, f"layer {layer} expert {source_id}: has {length} bytes, widths make {want}")
            require(source_id < source_experts and source_id not in seen, f"layer {layer}: expert {source_id}")
            seen.add(source_id)
            items.append((f"layer {layer} expert {source_id} {form}{' cold' * cold}", offset, length, digest))
        require(hot >= config.scalar(23, "q"), f"layer {layer}: routes to {hot} experts")
    for side_file in content.tables(3):
        items.append((f"side file {side_file.string(0)}", *side_file.struct(2, "3Q")))

    provenance = index.table(1)
    for report in provenance.tables(3):
        items.append((f"report {report.string(0)}", *report.struct(2, "3Q")))
    payload = xxh3(content_bytes)
    for receipt in index.tables(2):
        require(receipt.scalar(1, "Q") == payload, "receipt: was measured on another pack")
    for i, extent in enumerate(index.structs(3, "3Q")):
        items.append((f"retired index {i}", *extent))
    return items, payload


def check_pack(data, out):
    index_offset, index_length, index_hash, features = read_frame(data)
    index_bytes = data[index_offset:]
    require(xxh3(index_bytes) == index_hash, "index: hash does not match")
    items, payload = list_items(Buffer(index_bytes).root(), features)
    items.append(("index", index_offset, index_length, index_hash))

    end = 64
    for what, offset, length, digest in sorted(items, key=lambda item: item[1]):
        require(length > 0, f"{what}: is empty")
        require(offset == max(PAGE, up(end, PAGE)), f"{what}: starts at {offset}, expected {max(PAGE, up(end, PAGE))}")
        require(offset + length <= len(data), f"{what}: passes the end of the file")
        require(not any(data[end:offset]), f"{what}: the bytes before it are not zero")
        require(xxh3(data[offset:offset + length]) == digest, f"{what}: hash does not match")
        print(f"{offset:>14} {length:>14} {digest:016x}  {what}", file=out)
        end = offset + length
    require(end == len(data), f"{len(data) - end} bytes behind the index")
    return payload


def main(arguments):
    quiet = arguments[:1] == ["--quiet"]
    arguments = arguments[1:] if quiet else arguments
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with open(arguments[0], "rb") as file:
        data = memoryview(file.read())
    try:
        with open("/dev/null", "w", encoding="utf-8") as nowhere:
            payload = check_pack(data, nowhere if quiet else sys.stdout)
    except Fault as fault:
        print(f"{arguments[0]}: {fault}", file=sys.stderr)
        return 1
    print(f"{arguments[0]}: OK, {len(data)} bytes, payload {payload:016x}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
