// A pack can have terabytes, so attaching must not copy it, and a crash must not cost it. The new
// index goes behind the old one and reaches the disk; only then are the 64 bytes of the frame
// rewritten, which lie in one sector. A crash before that leaves the old pack and a tail behind it,
// which readers refuse and the next attach drops; a crash after it leaves the new pack. The old
// index stays where it was, listed as retired, so that every byte of the file stays accounted for.
#include "compiler/attach.h"

#include <fcntl.h>
#include <simdjson.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <set>
#include <string_view>

#include "compiler/pack_encode.h"
#include "compiler/report.h"
#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/layout.h"
#include "schema/output_file.h"
#include "schema/pack_reader.h"
#include "schema/printable.h"

namespace k3 {
namespace {

constexpr int64_t kLargestReceipt = int64_t{16} << 20;
constexpr int64_t kReceiptVersion = 1;

// Checks the three members that bind a receipt to a pack; the rest is the measurer's.
PackReceipt read_receipt(const std::string& path, const PackReader& pack) {
  const std::vector<std::byte> bytes = read_whole_file(path, kLargestReceipt);
  if (bytes.empty()) throw Error(path, ": is not JSON: the file is empty");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  simdjson::dom::parser parser;
  simdjson::dom::object receipt;
  const auto parsed = parser.parse(text.data(), text.size());
  if (parsed.error() != simdjson::SUCCESS) {
    throw Error(path, ": is not JSON: ", simdjson::error_message(parsed.error()));
  }
  if (parsed.get(receipt) != simdjson::SUCCESS) throw Error(path, ": is not a JSON object");
  std::set<std::string_view> keys;
  for (const auto& member : receipt) {
    if (!keys.insert(member.key).second) {
      throw Error(path, ": has the key ", printable(member.key), " twice");
    }
  }

  std::string_view kind;
  if (receipt["kind"].get(kind) != simdjson::SUCCESS || kind != "k3eval") {
    throw Error(path, ": kind is ", kind.empty() ? "missing" : printable(kind),
                ", expected k3eval");
  }
  int64_t version = 0;
  if (receipt["version"].get(version) != simdjson::SUCCESS) {
    throw Error(path, ": version is missing, expected ", kReceiptVersion);
  }
  if (version != kReceiptVersion) {
    throw Error(path, ": version is ", version, ", this program reads ", kReceiptVersion);
  }
  std::string_view payload;
  if (receipt["pack_payload_xxh3"].get(payload) != simdjson::SUCCESS) {
    throw Error(path, ": pack_payload_xxh3 is missing, expected 16 hexadecimal digits");
  }
  const std::string want = hex_digits(pack.payload_xxh3());
  if (payload != want) {
    throw Error(path, ": was measured on payload ", printable(payload), ", ", pack.path(), " has ",
                want);
  }
  return {std::string(kind), pack.payload_xxh3(), std::string(text)};
}

int open_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) throw Error(path, ": cannot open for writing: ", std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor);
    throw Error(path, ": another program is writing it");
  }
  return descriptor;
}

void append_index(const OutputFile& file, const PackReader& pack, const PackReceipt& receipt) {
  std::vector<PackReceipt> receipts = pack.index().receipts;
  receipts.push_back(receipt);
  std::vector<Extent> retired = pack.index().retired;
  retired.push_back(pack.frame().index);
  const std::vector<std::byte> index =
      encode_index(pack.content_bytes(), pack.index().provenance, receipts, retired);

  PackFrame frame;
  frame.index = {align_up(pack.file_bytes(), kExtentAlignment), static_cast<int64_t>(index.size()),
                 xxh3(index)};
  frame.file_bytes = frame.index.end_bytes();
  frame.features = pack.frame().features;
  file.write_at(frame.index.offset_bytes, index);
  file.sync();
  file.write_at(0, encode_frame(frame));
  file.sync();
}

void print_outcome(const PackReader& pack, bool is_new, bool as_json) {
  const size_t receipts = pack.index().receipts.size();
  if (as_json) {
    JsonWriter json(std::cout, 2);
    json.begin_object();
    json.member("pack", pack.path());
    json.member("attached", is_new);
    json.member("receipts", receipts);
    json.member("payload_xxh3", hex_digits(pack.payload_xxh3()));
    json.end_object();
    std::cout << '\n';
  } else if (is_new) {
    std::cout << pack.path() << ": has " << receipts << " receipts, payload "
              << hex_digits(pack.payload_xxh3()) << '\n';
  } else {
    std::cout << pack.path() << ": has this receipt already\n";
  }
}

}  // namespace

void run_attach(const std::string& pack_path, const std::string& receipt_path, bool json) {
  const OutputFile file(open_locked(pack_path), pack_path);
  const PackReader pack(pack_path, Tail::kIgnore);
  const PackReceipt receipt = read_receipt(receipt_path, pack);

  const File whole(pack_path);
  if (whole.size_bytes() > pack.file_bytes()) {
    if (::ftruncate(file.descriptor(), pack.file_bytes()) != 0) {
      throw Error(pack_path, ": cannot drop the tail behind byte ", pack.file_bytes(), ": ",
                  std::strerror(errno));
    }
    std::cerr << pack_path << ": dropped " << whole.size_bytes() - pack.file_bytes()
              << " bytes that an interrupted attach had left\n";
  }
  const auto& attached = pack.index().receipts;
  const bool is_there = std::any_of(attached.begin(), attached.end(), [&](const auto& earlier) {
    return earlier.text == receipt.text;
  });
  if (is_there) {
    print_outcome(pack, false, json);
    return;
  }
  append_index(file, pack, receipt);
  print_outcome(PackReader(pack_path), true, json);
}

}  // namespace k3
